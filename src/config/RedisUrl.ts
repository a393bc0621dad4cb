/** Parses `REDIS_URL`. Fails with the words after "Expected redis://… with", or with "" (see `ConnectionUrls.ts`). */
import { Redacted, Result } from "effect"
import { checkParameters, isDecodable, readTls } from "./ConnectionUrls.ts"

export type RedisUrl = Result.Result.Success<ReturnType<typeof parseRedisUrl>>

const hostForm = "(?:\\[[\\da-f:.]+\\]|[\\w.-]+)(?::\\d+)?"
/** `scheme://[user[:password]@][host[:port],…][/path][?parameters]` */
const redisForm = new RegExp(
  "^(rediss?)(?:\\+(sentinel|cluster))?://(?:([^:@/?#]*)(?::([^/?#]*))?@)?" +
    `((?:${hostForm}(?:,${hostForm})*)?)(?:/([^?#]*))?(?:\\?([^#]*))?$`,
  "i"
)

// The TLS parameters have the same names as in redis-py.
const redisTls = ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_password"] as const
const sentinelNames = ["sentinel_username", "sentinel_password"] as const

const kinds = {
  server: { port: 6379, path: /^()(\d*)$/, expected: "a database number, as in redis://host:6379/1" },
  sentinel: {
    port: 26_379,
    path: /^([^/]+)\/?(\d*)$/,
    expected: "the name of the master and, optionally, a database number, as in redis+sentinel://host:26379/name/1"
  },
  cluster: { port: 6379, path: /^()0?$/, expected: "no database, because a cluster has only one" }
}

const credentialsOf = (username: string, password: string) => ({
  ...username !== "" && { username },
  ...password !== "" && { password: Redacted.make(password) }
})

const addressOf = (text: string, defaultPort: number) => {
  const [, host = "", port = defaultPort] = /^(.*?)(?::(\d+))?$/.exec(text) ?? []
  return { host: host.replace(/^\[|\]$/g, "") || "localhost", port: Number(port) }
}

export const parseRedisUrl = (text: string) =>
  Result.gen(function*() {
    const match = redisForm.exec(text.trim())
    if (match === null || !isDecodable(text)) return yield* Result.fail("")
    const [, scheme = "", mode = "server", username = "", password = "", hosts = "", path = "", query = ""] = match
    const isTls = scheme.toLowerCase() === "rediss"
    const kind = mode.toLowerCase() === "sentinel" ? "sentinel" : mode === "server" ? mode : "cluster"
    const parameters = new URLSearchParams(query)
    yield* checkParameters(parameters, [...isTls ? redisTls : [], ...kind === "sentinel" ? sentinelNames : []])
    const addresses = hosts.split(",").map((host) => addressOf(host, kinds[kind].port))
    const [first, ...others] = addresses
    if (first === undefined || hosts === "" && kind !== "server") return yield* Result.fail("a host")
    if (others.length > 0 && kind === "server") {
      return yield* Result.fail("one host, or redis+sentinel:// or redis+cluster:// for several")
    }
    if (addresses.some(({ port }) => port < 1 || port > 65_535)) return yield* Result.fail("ports from 1 to 65535")
    const [, masterName = "", database = ""] = kinds[kind].path.exec(path) ?? (yield* Result.fail(kinds[kind].expected))
    const [sentinelUsername = "", sentinelPassword = ""] = sentinelNames.map((name) => parameters.get(name) ?? "")
    return {
      kind,
      addresses: [first, ...others],
      credentials: credentialsOf(decodeURIComponent(username), decodeURIComponent(password)),
      database: Number(database),
      masterName: decodeURIComponent(masterName),
      sentinelCredentials: credentialsOf(sentinelUsername, sentinelPassword),
      tls: isTls ? yield* readTls(parameters, redisTls) : undefined
    } as const
  })
