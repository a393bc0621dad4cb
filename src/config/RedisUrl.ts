/**
 * Reads `REDIS_URL`: the URL of one server, of the sentinels of a server, or of a cluster. The forms with several hosts
 * are those of Celery and Spring. The parameters for TLS have the names that redis-py gives them.
 */
import { Redacted, Result } from "effect"
import * as PemFiles from "./PemFiles.ts"

export interface Address {
  readonly host: string
  readonly port: number
}

export interface Credentials {
  readonly username?: string
  readonly password?: Redacted.Redacted
}

export interface RedisUrl {
  readonly kind: "server" | "sentinel" | "cluster"
  /** The server, or the sentinels, or some nodes of the cluster. */
  readonly addresses: readonly [Address, ...ReadonlyArray<Address>]
  readonly credentials: Credentials
  readonly database: number
  /** The name that the sentinels give to the master. */
  readonly masterName: string
  readonly sentinelCredentials: Credentials
  /** Options of `tls.connect`, with the text of the files in the URL. `undefined` without TLS. */
  readonly tls: ({ readonly ca?: Array<string> } & Partial<PemFiles.ClientCertificate>) | undefined
}

const hostForm = "(?:\\[[\\da-f:.]+\\]|[\\w.-]+)(?::\\d+)?"
/** `scheme://[user[:password]@]host[:port],…[/path][?parameters]`. A single server can have an empty host. */
const form = new RegExp(
  "^(rediss?)(?:\\+(sentinel|cluster))?://(?:([^:@/?#]*)(?::([^/?#]*))?@)?" +
    `((?:${hostForm}(?:,${hostForm})*)?)(?:/([^?#]*))?(?:\\?([^#]*))?$`,
  "i"
)

const defaultPorts = { server: 6379, sentinel: 26_379, cluster: 6379 }
const tlsNames = ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_password"]
const sentinelNames = ["sentinel_username", "sentinel_password"]

/** Parses a URL, and reads the files that it names. The failure completes "Expected a URL with …", without secrets. */
export const parse = (text: string): Result.Result<RedisUrl, string> =>
  Result.gen(function*() {
    const match = form.exec(text.trim())
    if (match === null || !isDecodable(text)) return yield* Result.fail("")
    const [, scheme = "", mode = "server", username = "", password = "", hosts = "", path = "", query = ""] = match
    const isTls = scheme.toLowerCase() === "rediss"
    const kind = mode.toLowerCase() === "sentinel" ? "sentinel" : mode === "server" ? mode : "cluster"
    const parameters = new URLSearchParams(query)
    const known = [...isTls ? tlsNames : [], ...kind === "sentinel" ? sentinelNames : []]
    const unknown = [...parameters.keys()].find((name) => /^(?:ssl|sentinel)_/.test(name) && !known.includes(name))
    if (unknown !== undefined) {
      return yield* Result.fail(known.length > 0 ? `${known.join(", ")}, not ${unknown}` : `no parameter ${unknown}`)
    }
    const [sentinelUsername = "", sentinelPassword = ""] = sentinelNames.map((name) => parameters.get(name) ?? "")
    return {
      kind,
      addresses: yield* readAddresses(hosts, kind),
      credentials: credentialsOf(decodeURIComponent(username), decodeURIComponent(password)),
      ...yield* readPath(path, kind),
      sentinelCredentials: credentialsOf(sentinelUsername, sentinelPassword),
      tls: isTls ? yield* readTls(parameters) : undefined
    }
  })

const isDecodable = (text: string): boolean =>
  Result.isSuccess(Result.try({ try: () => decodeURIComponent(text), catch: () => "" }))

const credentialsOf = (username: string, password: string): Credentials => ({
  ...username !== "" && { username },
  ...password !== "" && { password: Redacted.make(password) }
})

const readAddresses = (hosts: string, kind: RedisUrl["kind"]): Result.Result<RedisUrl["addresses"], string> => {
  const [first, ...others] = hosts.split(",").map((each) => {
    const [, host = "", port = defaultPorts[kind]] = /^(.*?)(?::(\d+))?$/.exec(each) ?? []
    return { host: host.replace(/^\[|\]$/g, "") || "localhost", port: Number(port) }
  })
  if (first === undefined || hosts === "" && kind !== "server") return Result.fail("a host")
  if (others.length > 0 && kind === "server") {
    return Result.fail("one host, or redis+sentinel:// or redis+cluster:// for several")
  }
  return [first, ...others].every(({ port }) => 1 <= port && port <= 65_535)
    ? Result.succeed([first, ...others])
    : Result.fail("ports from 1 to 65535")
}

/** Reads `/database`, or `/name/database` for sentinels. */
const readPath = (
  path: string,
  kind: RedisUrl["kind"]
): Result.Result<Pick<RedisUrl, "database" | "masterName">, string> => {
  const [, masterName = "", database = ""] = (kind === "sentinel" ? /^([^/]*)\/?(.*)$/s : /^()(.*)$/s).exec(path) ?? []
  if (kind === "sentinel" && masterName === "") {
    return Result.fail("the name of the master, as in redis+sentinel://host:26379/name")
  }
  if (!/^\d*$/.test(database)) return Result.fail("a database number")
  if (kind === "cluster" && Number(database) !== 0) return Result.fail("no database, because a cluster has only one")
  return Result.succeed({ database: Number(database), masterName: decodeURIComponent(masterName) })
}

/** Reads the files for TLS. The certificate and the host of a server are always verified. */
const readTls = (parameters: URLSearchParams): Result.Result<RedisUrl["tls"], string> =>
  Result.gen(function*() {
    const file = (name: string) => ({ name, path: parameters.get(name) ?? "" })
    const [ca, cert, key] = [file("ssl_ca_certs"), file("ssl_certfile"), file("ssl_keyfile")]
    if ((cert.path === "") !== (key.path === "")) {
      return yield* Result.fail("both ssl_certfile and ssl_keyfile, or none")
    }
    const password = parameters.get("ssl_password") ?? undefined
    return {
      ...ca.path !== "" && { ca: [...yield* PemFiles.readAuthorities(ca)] },
      ...cert.path !== "" && (yield* PemFiles.readClientCertificate(cert, key, password))
    }
  })
