import { assert, describe, it } from "@effect/vitest"
import * as ClusterMap from "../../../src/rate-limit/redis/ClusterMap.ts"

const from = { host: "10.0.0.9", port: 7009 }

describe("slotOf", () => {
  it("returns the slots that Redis computes", () => {
    // From CLUSTER KEYSLOT.
    assert.strictEqual(ClusterMap.slotOf("123456789"), 12_739)
    assert.strictEqual(ClusterMap.slotOf("foo"), 12_182)
    assert.strictEqual(ClusterMap.slotOf("{foo}bar"), 12_182)
    assert.strictEqual(ClusterMap.slotOf("a{foo}{bar}"), 12_182)
    assert.strictEqual(ClusterMap.slotOf("foo{}{bar}"), 8_363)
    assert.strictEqual(ClusterMap.slotOf("petstore:limits:key:1"), 14794)
  })
})

const master = (id: string, port: number, host: string | null = "10.0.0.1") => [host, port, id, []]

describe("parse", () => {
  it("groups the ranges of slots by master", () => {
    const groups = ClusterMap.parse([
      [0, 5, master("a", 7001), master("c", 7003)],
      [6, 6, master("b", 7002)],
      [7, 9, master("a", 7001)]
    ], from)
    assert.deepStrictEqual(groups, [
      {
        master: "a",
        address: { host: "10.0.0.1", port: 7001 },
        nodes: new Set(["a", "c"]),
        ranges: [[0, 5], [7, 9]]
      },
      { master: "b", address: { host: "10.0.0.1", port: 7002 }, nodes: new Set(["b"]), ranges: [[6, 6]] }
    ])
  })

  it("takes the host that a node was reached at if the node names none", () => {
    for (const host of [null, "", "?"]) {
      const [group] = ClusterMap.parse([[0, 5, master("a", 7001, host)]], from) ?? []
      assert.deepStrictEqual(group?.address, { host: "10.0.0.9", port: 7001 })
    }
  })

  it("returns undefined for a reply that is no map", () => {
    for (const reply of ["OK", null, [[0, 5]], [["0", 5, master("a", 1)]]]) {
      assert.isUndefined(ClusterMap.parse(reply, from))
    }
  })
})

describe("tagOf", () => {
  it("returns a tag in a slot of the group, which stays when other slots move", () => {
    const group = { master: "a", address: from, nodes: new Set(["a"]), ranges: [[0, 5460], [8000, 8000]] as const }
    const tag = ClusterMap.tagOf(group)
    const slot = ClusterMap.slotOf(`petstore:limits:clock:{${tag}}`)
    assert.isTrue(slot <= 5460 || slot === 8000)
    assert.strictEqual(ClusterMap.tagOf({ ...group, ranges: [[slot, 5460]] }), tag)
    const one = ClusterMap.tagOf({ ...group, ranges: [[8000, 8000]] })
    assert.strictEqual(ClusterMap.slotOf(one), 8000)
  })
})

describe("parseRedirection", () => {
  it("reads MOVED and ASK, also with IPv6 addresses and without a host", () => {
    assert.deepStrictEqual(ClusterMap.parseRedirection("MOVED 12 10.0.0.1:7001", from), {
      isAsk: false,
      slot: 12,
      address: { host: "10.0.0.1", port: 7001 }
    })
    assert.deepStrictEqual(ClusterMap.parseRedirection("ASK 12 fd00::2:7001", from)?.address, {
      host: "fd00::2",
      port: 7001
    })
    assert.deepStrictEqual(ClusterMap.parseRedirection("ASK 12 :7001", from)?.address, { host: from.host, port: 7001 })
  })

  it("returns undefined for other errors", () => {
    for (const message of ["CLUSTERDOWN The cluster is down", "TRYAGAIN", "MOVED", "ERR MOVED 1 h:1"]) {
      assert.isUndefined(ClusterMap.parseRedirection(message, from))
    }
  })
})
