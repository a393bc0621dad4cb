/**
 * Reads Redis URLs: of one server, of the sentinels of a server, and of a cluster. The forms with several hosts are
 * those of Celery and Spring. The parameters for TLS have the names that redis-py gives them.
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

/** The paths of files for TLS. */
interface TlsFiles {
  readonly ca: string | undefined
  readonly clientCertificate: { readonly cert: string; readonly key: string } | undefined
  readonly password: Redacted.Redacted | undefined
}

/** Options of `tls.connect`, without the server name. */
export interface RedisTls extends Partial<PemFiles.ClientCertificate> {
  readonly ca?: Array<string>
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
  /** `undefined` without TLS. */
  readonly tls: TlsFiles | undefined
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

/** Parses a URL. The failure completes "Expected a URL with …", and has no password. */
export const parse = (text: string): Result.Result<RedisUrl, string> =>
  Result.gen(function*() {
    const match = form.exec(text.trim())
    if (match === null || !isDecodable(text)) return yield* Result.fail("")
    const [, scheme = "", mode, username = "", password = "", hosts = "", path = "", query = ""] = match
    const kind = mode?.toLowerCase() === "sentinel" ? "sentinel" : mode === undefined ? "server" : "cluster"
    const parameters = new URLSearchParams(query)
    return {
      kind,
      addresses: yield* readAddresses(hosts, kind),
      credentials: credentialsOf(decodeURIComponent(username), decodeURIComponent(password)),
      ...yield* readPath(path, kind),
      sentinelCredentials: yield* readSentinelCredentials(parameters, kind),
      tls: yield* readTlsFiles(parameters, scheme.toLowerCase() === "rediss")
    }
  })

/** Parses a URL, and reads the files that it names. */
export const check = (text: string): Result.Result<RedisUrl, string> =>
  Result.flatMap(
    parse(text),
    (url) => url.tls === undefined ? Result.succeed(url) : Result.map(readTls(url.tls), () => url)
  )

export const format = ({ host, port }: Address): string => `${host.includes(":") ? `[${host}]` : host}:${port}`

export const isSame = (one: Address | undefined, other: Address | undefined): boolean =>
  one?.host === other?.host && one?.port === other?.port

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
  if (!/^\d*$/.test(database)) {
    return Result.fail(kind === "sentinel" ? "a database number, as in redis+sentinel://host:26379/name/1" : "")
  }
  if (kind === "cluster" && Number(database) !== 0) return Result.fail("no database, because a cluster has only one")
  return Result.succeed({ database: Number(database), masterName: decodeURIComponent(masterName) })
}

const readSentinelCredentials = (
  parameters: URLSearchParams,
  kind: RedisUrl["kind"]
): Result.Result<Credentials, string> => {
  const given = [...parameters.keys()].filter((name) => name.startsWith("sentinel_"))
  const unknown = given.find((name) => !sentinelNames.includes(name))
  if (unknown !== undefined) return Result.fail(`the parameters ${sentinelNames.join(" and ")}, not ${unknown}`)
  if (kind !== "sentinel" && given.length > 0) return Result.fail("redis+sentinel:// for sentinel parameters")
  const [username, password] = sentinelNames.map((name) => parameters.get(name) ?? "")
  return Result.succeed(credentialsOf(username ?? "", password ?? ""))
}

const readTlsFiles = (parameters: URLSearchParams, isTls: boolean): Result.Result<TlsFiles | undefined, string> => {
  const unknown = [...parameters.keys()].find((name) => name.startsWith("ssl") && !tlsNames.includes(name))
  if (unknown !== undefined) return Result.fail(`the ssl parameters ${tlsNames.join(", ")}, not ${unknown}`)
  const [ca, cert, key, password] = tlsNames.map((name) => parameters.get(name) ?? undefined)
  if (!isTls) {
    return tlsNames.some((name) => parameters.has(name))
      ? Result.fail("rediss:// for ssl parameters")
      : Result.succeed(undefined)
  }
  if ((cert === undefined) !== (key === undefined)) return Result.fail("both ssl_certfile and ssl_keyfile, or none")
  return Result.succeed({
    ca,
    clientCertificate: cert === undefined || key === undefined ? undefined : { cert, key },
    password: password === undefined ? undefined : Redacted.make(password)
  })
}

/**
 * Reads the files for TLS. The certificate and the host are always verified, by the authorities in `ssl_ca_certs` or
 * those that Node trusts. Each connection reads the files anew: they can be replaced.
 */
export const readTls = ({ ca, clientCertificate, password }: TlsFiles): Result.Result<RedisTls, string> =>
  Result.gen(function*() {
    return {
      ...ca !== undefined && { ca: [...yield* PemFiles.readAuthorities({ name: "ssl_ca_certs", path: ca })] },
      ...clientCertificate !== undefined && (yield* PemFiles.readClientCertificate(
        { name: "ssl_certfile", path: clientCertificate.cert },
        { name: "ssl_keyfile", path: clientCertificate.key },
        password === undefined ? undefined : Redacted.value(password)
      ))
    }
  })
