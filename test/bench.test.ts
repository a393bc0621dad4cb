/** The contenders of the bench do the same work: they give the same answers. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Contender from "../bench/Contender.ts"
import * as Workload from "../bench/Workload.ts"

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("The contenders of the bench", () => {
  it.live("answer the same bytes, count both windows, and refuse an unknown key", () =>
    Effect.gen(function*() {
      const { key, url } = yield* Workload.database(100)
      const env = { DATABASE_URL: url }
      const service = yield* Contender.start("Petstore", { env, key })
      const floor = { SERVICE: service.address, KEY: key }
      const others = yield* Effect.forEach(
        [...Contender.peers, "floor (node:http)", "floor, committing"] as const,
        (name) => Contender.start(name, { env: { ...env, ...floor }, key })
      )
      const ask = ({ address }: Contender.Contender, path: string, init: RequestInit = {}, bearer = key) =>
        Effect.promise(async () => {
          const response = await fetch(`${address}${path}`, {
            ...init,
            headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" }
          })
          const { headers, status } = response
          return {
            status,
            link: headers.get("link"),
            limit: headers.get("x-ratelimit-limit"),
            body: await response.text()
          }
        })
      const cursor = Buffer.from("50").toString("base64url")
      for (const path of ["/v1/pets", "/v1/pets/1", `/v1/pets?limit=7&cursor=${cursor}`]) {
        const { body, status } = yield* ask(service, path)
        assert.strictEqual(status, 200)
        for (const other of others.filter(({ name }) => !path.includes("?") || !name.startsWith("floor"))) {
          const answer = yield* ask(other, path)
          assert.deepStrictEqual({ name: other.name, body: answer.body }, { name: other.name, body })
        }
      }
      const withoutId = (text: string) => text.replace(/"id":\d+/, "")
      const created = yield* ask(service, "/v1/pets", { method: "POST", body: Workload.newPet })
      assert.strictEqual(created.status, 201)
      for (const other of others) {
        const answer = yield* ask(other, "/v1/pets", { method: "POST", body: Workload.newPet })
        assert.deepStrictEqual([other.name, answer.status, withoutId(answer.body)], [
          other.name,
          201,
          withoutId(created.body)
        ])
      }
      for (const peer of others.filter(({ name }) => !name.startsWith("floor"))) {
        assert.strictEqual((yield* ask(peer, "/v1/pets/1", {}, "psk_unknown")).status, 401, peer.name)
      }
    }), 120_000)
})
