import { assert, describe, it } from "@effect/vitest"
import { Redacted, Result } from "effect"
import * as RedisUrl from "../../src/config/RedisUrl.ts"

const parse = (url: string) => Result.getOrThrow(RedisUrl.parse(url))
const problem = (url: string) => Result.getOrThrow(Result.flip(RedisUrl.parse(url)))

describe("RedisUrl", () => {
  it("reads the server, the credentials and the database", () => {
    assert.deepStrictEqual(parse("redis://us%40er:p%2Fw@redis.internal:6380/15"), {
      kind: "server",
      addresses: [{ host: "redis.internal", port: 6380 }],
      credentials: { username: "us@er", password: Redacted.make("p/w") },
      database: 15,
      masterName: "",
      sentinelCredentials: {},
      tls: undefined
    })
    assert.deepInclude(parse("redis://:p@[::1]"), {
      addresses: [{ host: "::1", port: 6379 }],
      credentials: { password: Redacted.make("p") },
      database: 0
    })
    assert.deepStrictEqual(parse("redis://").addresses, [{ host: "localhost", port: 6379 }])
  })

  it("reads sentinels with the name of the master, the database, and credentials of their own", () => {
    const url =
      "redis+sentinel://u:p@s-1:26380,[fd00::2],10.0.0.3/my%20pets/2?sentinel_username=a&sentinel_password=b%26"
    assert.deepStrictEqual(parse(url), {
      kind: "sentinel",
      addresses: [{ host: "s-1", port: 26_380 }, { host: "fd00::2", port: 26_379 }, { host: "10.0.0.3", port: 26_379 }],
      credentials: { username: "u", password: Redacted.make("p") },
      database: 2,
      masterName: "my pets",
      sentinelCredentials: { username: "a", password: Redacted.make("b&") },
      tls: undefined
    })
    assert.deepInclude(parse("rediss+sentinel://s/pets"), { masterName: "pets", database: 0, tls: {} })
  })

  it("reads the nodes of a cluster", () => {
    const cluster = parse("REDISS+CLUSTER://n-1,n-2:7000/0")
    assert.strictEqual(cluster.kind, "cluster")
    assert.deepStrictEqual(cluster.addresses, [{ host: "n-1", port: 6379 }, { host: "n-2", port: 7000 }])
    assert.deepStrictEqual(cluster.tls, {})
  })

  it.each([
    ["redis://h,i", "one host, or redis+sentinel:// or redis+cluster:// for several"],
    ["redis+sentinel://h", "the name of the master, as in redis+sentinel://host:26379/name"],
    ["redis+sentinel://h/", "the name of the master, as in redis+sentinel://host:26379/name"],
    ["redis+sentinel:///pets", "a host"],
    ["redis+sentinel://h/pets/one", "a database number"],
    ["redis+sentinel://h:0/pets", "ports from 1 to 65535"],
    ["redis+cluster://h,i:65536", "ports from 1 to 65535"],
    ["redis+cluster://", "a host"],
    ["redis+cluster://h/1", "no database, because a cluster has only one"],
    ["redis+cluster://h?sentinel_password=p", "no parameter sentinel_password"],
    [
      "redis+sentinel://h/pets?sentinel_user=u",
      "sentinel_username, sentinel_password, not sentinel_user"
    ],
    ["redis+cluster://h?ssl_ca_certs=/a", "no parameter ssl_ca_certs"],
    ["rediss://h?ssl_certfile=/a", "both ssl_certfile and ssl_keyfile, or none"],
    [
      "rediss://h?ssl_ca_cert=/a",
      "ssl_ca_certs, ssl_certfile, ssl_keyfile, ssl_password, not ssl_ca_cert"
    ],
    ["redis+proxy://h", ""],
    ["redis+cluster://h,,i", ""],
    ["redis+cluster://h;i", ""],
    ["redis://h/one", "a database number"]
  ])("rejects %s and names the problem", (url, expected) => {
    assert.strictEqual(problem(url), expected)
  })
})
