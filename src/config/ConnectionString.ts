/**
 * Reads PostgreSQL connection strings as libpq does (PostgreSQL, "Connection URIs" and "SSL Support").
 *
 * Stricter than libpq: a parameter without an effect here and a missing `sslrootcert` are errors, and with several
 * hosts `target_session_attrs` is `read-write` by default. Environment variables (`PGSSLMODE`) and files in
 * `~/.postgresql` are not read. `pgbouncer` is the only parameter that libpq does not have.
 */
import { Redacted, Result } from "effect"
import { isIP } from "node:net"
import type { ConnectionOptions } from "node:tls"
import * as PemFiles from "./PemFiles.ts"

/** One server and the way to connect to it. */
export interface Server {
  /** A host name, an IP address, or the directory of a Unix socket. */
  readonly host: string
  readonly port: number
  /** With `preferred`, a connection is not encrypted if the server has no TLS. */
  readonly encryption: "none" | "preferred" | "required"
  readonly tls: ConnectionOptions
}

const targets = ["any", "read-write", "read-only", "primary", "standby", "prefer-standby"] as const

/** The state that a server must have (PostgreSQL, "Connection Control Functions"). */
export type TargetSessionAttrs = typeof targets[number]

/** The servers of one database and the way to connect to them. */
export interface ConnectionString {
  /** The servers, in the order in which they are tried. */
  readonly servers: readonly [Server, ...ReadonlyArray<Server>]
  readonly targetSessionAttrs: TargetSessionAttrs
  readonly username: string | undefined
  readonly password: Redacted.Redacted | undefined
  readonly database: string | undefined
  readonly applicationName: string | undefined
  readonly options: string | undefined
  /** Whether a pooler such as PgBouncer is in front, which gives each transaction another session. */
  readonly isPooled: boolean
  /** The timeout of connecting to one server in seconds. 0 is none. */
  readonly connectTimeoutSeconds: number | undefined
}

/** Whether the service connects to a server that accepts no writes. */
export const isReplica = ({ targetSessionAttrs }: ConnectionString): boolean =>
  targetSessionAttrs === "read-only" || targetSessionAttrs.endsWith("standby")

type Problem = string
type Parameters = ReadonlyMap<string, string>

const modes = ["disable", "prefer", "require", "verify-ca", "verify-full"] as const

/** Each parameter that has an effect, with its valid values. Without a list, any text is valid. */
const supported: Readonly<Record<string, ReadonlyArray<string> | undefined>> = {
  host: undefined,
  port: undefined,
  dbname: undefined,
  user: undefined,
  password: undefined,
  application_name: undefined,
  options: undefined,
  connect_timeout: undefined,
  sslmode: modes,
  sslrootcert: undefined,
  sslcert: undefined,
  sslkey: undefined,
  sslpassword: undefined,
  // The driver has no channel binding, so it cannot be required.
  channel_binding: ["disable", "prefer"],
  target_session_attrs: targets,
  // Not of libpq. Prisma gives it this meaning.
  pgbouncer: ["true", "false"]
}

const supportedNames = Object.keys(supported)

const oneOf = (words: ReadonlyArray<string>): string => `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`

/** Decodes percent-encoding. A `+` stays a `+`, as in libpq. */
const decode = (text: string): Result.Result<string, Problem> =>
  Result.flatMap(
    Result.try({ try: () => decodeURIComponent(text), catch: () => "valid percent-encoding" }),
    (decoded) => decoded.includes("\0") ? Result.fail("no %00") : Result.succeed(decoded)
  )

const credentials = "(?:([^:@/]*)(?::([^@/]*))?@)?"
const hostForm = "(?:\\[[^\\]/?]+\\]|[^:/?@[\\],]*)"
const hostsForm = `(${hostForm}(?::[^/?,]*)?(?:,${hostForm}(?::[^/?,]*)?)*)`
/** `scheme://[user[:password]@][host[:port],…][/dbname][?parameters]`. The first `@` ends the password. */
const form = new RegExp(`^postgres(?:ql)?://${credentials}${hostsForm}(?:/([^?]*))?(?:\\?(.*))?$`, "is")

/** Reads all parameters, those before the query too. The last one of a name wins. */
const readParameters = (text: string): Result.Result<Parameters, Problem> =>
  Result.gen(function*() {
    const match = form.exec(text)
    if (match === null) return yield* Result.fail("")
    const [, user, password, hosts = "", dbname, query = ""] = match
    const parameters = new Map<string, string>()
    const list = hosts.split(",").map((each) => /^(?:\[(.*)\]|([^:]*))(?::(.*))?$/s.exec(each) ?? [])
    const host = list.map(([, address, name]) => address ?? name).join(",")
    const port = list.map(([, , , number = ""]) => number).join(",")
    // Without any, the names are empty.
    const before = { user, password, host: /^,*$/.test(host) ? "" : host, port: /^,*$/.test(port) ? "" : port, dbname }
    for (const [name, value = ""] of Object.entries(before)) {
      if (value !== "") parameters.set(name, yield* decode(value))
    }
    // An @ behind the host can end a password with unencoded characters: errors must not repeat parts of it.
    const isSafe = ![hosts, dbname, query].some((part) => part?.includes("@"))
    for (const parameter of query.split("&").filter((each) => each !== "")) {
      const parts = parameter.split("=")
      if (parts.length !== 2) return yield* Result.fail("parameters like name=value, and & between them")
      const name = yield* decode(parts[0] ?? "")
      const value = yield* decode(parts[1] ?? "")
      // JDBC's parameter, which libpq accepts too.
      if (name === "ssl" && value === "true") {
        parameters.set("sslmode", "require")
        continue
      }
      if (!supportedNames.includes(name)) {
        return yield* Result.fail(`the parameters ${supportedNames.join(", ")}${isSafe ? `, not ${name}` : ""}`)
      }
      const values = supported[name]
      if (values !== undefined && value !== "" && !values.includes(value)) {
        return yield* Result.fail(`${name} ${oneOf(values)}${isSafe ? `, not ${value}` : ""}`)
      }
      if (value === "") parameters.delete(name)
      else parameters.set(name, value)
    }
    return parameters
  })

const toNumber = (
  text: string | undefined,
  name: string,
  { max, min }: { readonly min: number; readonly max: number }
): Result.Result<number | undefined, Problem> => {
  if (text === undefined || text === "") return Result.succeed(undefined)
  const isValid = /^\d+$/.test(text) && min <= Number(text) && Number(text) <= max
  return isValid ? Result.succeed(Number(text)) : Result.fail(`${name} from ${min} to ${max}`)
}

/** The rules of `sslmode` and its files. libpq describes them in "Protection Provided in Different Modes". */
const readTls = (
  parameters: Parameters,
  host: string
): Result.Result<Pick<Server, "encryption" | "tls">, Problem> =>
  Result.gen(function*() {
    const root = parameters.get("sslrootcert")
    const mode = parameters.get("sslmode") ?? (root === "system" ? "verify-full" : "prefer")
    if (root === "system" && mode !== "verify-full") {
      return yield* Result.fail(`sslmode verify-full with sslrootcert system, not ${mode}`)
    }
    if (root === undefined && mode.startsWith("verify-")) {
      return yield* Result.fail(`sslrootcert (a file, or system) with sslmode ${mode}`)
    }
    const ca = root === undefined
      ? undefined
      : root === "system"
      ? PemFiles.systemAuthorities()
      : yield* PemFiles.readAuthorities({ name: "sslrootcert", path: root })
    const certificate = yield* readClientCertificate(parameters)
    // libpq ignores `sslmode` on a Unix socket.
    const encryption = mode === "disable" || host.startsWith("/")
      ? "none"
      : mode === "prefer"
      ? "preferred"
      : "required"
    return {
      encryption,
      tls: {
        host,
        // SNI carries a host name, never an IP address (RFC 6066 §3).
        ...(isIP(host) === 0 ? { servername: host } : {}),
        // Without an authority there is no verification. With one, each mode verifies.
        rejectUnauthorized: ca !== undefined,
        ...(ca === undefined ? {} : { ca: [...ca] }),
        // Only verify-full compares the host with the names of the certificate.
        ...(mode === "verify-full" ? {} : { checkServerIdentity: () => undefined }),
        ...certificate
      }
    }
  })

const readClientCertificate = (
  parameters: Parameters
): Result.Result<PemFiles.ClientCertificate | undefined, Problem> => {
  const cert = parameters.get("sslcert")
  const key = parameters.get("sslkey")
  if (cert === undefined && key === undefined) return Result.succeed(undefined)
  if (cert === undefined || key === undefined) return Result.fail("both sslcert and sslkey, or none")
  return PemFiles.readClientCertificate(
    { name: "sslcert", path: cert },
    { name: "sslkey", path: key },
    parameters.get("sslpassword")
  )
}

/** Reads the hosts, with one port for all of them or one for each. */
const readServers = (parameters: Parameters): Result.Result<ConnectionString["servers"], Problem> =>
  Result.gen(function*() {
    const hosts = (parameters.get("host") ?? "").split(",")
    const ports = (parameters.get("port") ?? "").split(",")
    if (ports.length !== 1 && ports.length !== hosts.length) return yield* Result.fail("one port, or one for each host")
    const servers: Array<Server> = []
    for (const [index, name] of hosts.entries()) {
      const host = name === "" ? "localhost" : name
      const port = yield* toNumber(ports[ports.length === 1 ? 0 : index], "port", { min: 1, max: 65_535 })
      servers.push({ host, port: port ?? 5432, ...(yield* readTls(parameters, host)) })
    }
    const [first, ...others] = servers
    return first === undefined ? yield* Result.fail("a host") : [first, ...others]
  })

/** A pooler passes on neither startup parameters nor the state of its server. */
const readPooled = (parameters: Parameters): Result.Result<boolean, Problem> => {
  if (parameters.get("pgbouncer") !== "true") return Result.succeed(false)
  const conflict = ["options", "target_session_attrs"].find((name) => parameters.has(name))
  if (conflict !== undefined) return Result.fail(`no ${conflict} with pgbouncer=true`)
  const hasSeveral = parameters.get("host")?.includes(",") === true
  return hasSeveral ? Result.fail("one host with pgbouncer=true") : Result.succeed(true)
}

/**
 * Parses a connection string and reads the files that it names. The failure completes "Expected a URL with …"; it is
 * empty if the text is no such URL, and never contains a password.
 */
export const parse = (text: string): Result.Result<ConnectionString, Problem> =>
  Result.gen(function*() {
    const parameters = yield* readParameters(text.trim())
    const servers = yield* readServers(parameters)
    const password = parameters.get("password")
    const attributes = targets.find((each) => each === parameters.get("target_session_attrs"))
    return {
      servers,
      targetSessionAttrs: attributes ?? (servers.length === 1 ? "any" : "read-write"),
      username: parameters.get("user"),
      password: password === undefined ? undefined : Redacted.make(password),
      database: parameters.get("dbname"),
      applicationName: parameters.get("application_name"),
      options: parameters.get("options"),
      isPooled: yield* readPooled(parameters),
      connectTimeoutSeconds: yield* toNumber(parameters.get("connect_timeout"), "connect_timeout", {
        min: 0,
        max: 2_147_483
      })
    }
  })
