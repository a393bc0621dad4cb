/**
 * Reads `DATABASE_URL`. The driver reads the URL itself, and this module the parameters that the driver does not have.
 *
 * A parameter without an effect is an error, because the driver would ignore it. No error repeats a part of the URL,
 * which can contain a password with unencoded characters.
 */
import { Redacted, Result } from "effect"
import type { ConnectionOptions } from "node:tls"
import * as PemFiles from "./PemFiles.ts"

/** One PostgreSQL endpoint and the way to connect to it. */
export interface ConnectionString {
  readonly url: Redacted.Redacted
  /** A host name, an IP address, or the directory of a Unix socket. */
  readonly host: string
  readonly port: number
  readonly ssl: false | ConnectionOptions
  readonly applicationName: string
  /** Whether a pooler such as PgBouncer is in front, which gives each transaction another session. */
  readonly isPooled: boolean
}

type Problem = string

/** Each parameter, with its valid values. Without a list, any text is valid. */
const supported: Readonly<Record<string, ReadonlyArray<string> | undefined>> = {
  host: undefined,
  port: undefined,
  user: undefined,
  password: undefined,
  dbname: undefined,
  application_name: undefined,
  options: undefined,
  connect_timeout: undefined,
  sslmode: ["disable", "require", "verify-ca", "verify-full"],
  sslrootcert: undefined,
  sslcert: undefined,
  sslkey: undefined,
  sslpassword: undefined,
  // Not of libpq. Prisma gives it this meaning.
  pgbouncer: ["true", "false"]
}

const oneHost = "one host: a server, or an address that follows the primary, such as haproxy's or a managed one"
const hasSeveralHosts = (text: string): boolean => /^\w+:\/\/(?:[^@/?]*@)?[^/?]*,/.test(text)

/** The rules of `sslmode` and its files. libpq describes them in "Protection Provided in Different Modes". */
const readSsl = (parameters: URLSearchParams): Result.Result<ConnectionString["ssl"], Problem> =>
  Result.gen(function*() {
    const [mode = "disable", root, cert, key, password] = ["mode", "rootcert", "cert", "key", "password"].map(
      (name) => parameters.get(`ssl${name}`) ?? undefined
    )
    if (mode === "disable") {
      return [root, cert, key].every((file) => file === undefined)
        ? false
        : yield* Result.fail("sslmode require, verify-ca or verify-full, because it names files for TLS")
    }
    if (root === undefined && mode.startsWith("verify-")) {
      return yield* Result.fail(`sslrootcert (a file, or system) with sslmode ${mode}`)
    }
    if ((cert === undefined) !== (key === undefined)) return yield* Result.fail("both sslcert and sslkey, or none")
    const authorities = root === undefined
      ? undefined
      : root === "system"
      ? PemFiles.systemAuthorities()
      : yield* PemFiles.readAuthorities({ name: "sslrootcert", path: root })
    return {
      // With an authority each mode verifies the chain. Only verify-full compares the host with the certificate.
      ...(authorities === undefined ? { rejectUnauthorized: false } : { ca: [...authorities] }),
      ...(mode === "verify-full" ? {} : { checkServerIdentity: () => undefined }),
      ...(cert === undefined || key === undefined ? {} : yield* PemFiles.readClientCertificate(
        { name: "sslcert", path: cert },
        { name: "sslkey", path: key },
        password
      ))
    }
  })

/**
 * Parses a connection string and reads the files that it names. The failure completes "Expected a URL with …", and is
 * empty if the text is no such URL.
 */
export const parse = (text: string): Result.Result<ConnectionString, Problem> =>
  Result.gen(function*() {
    const href = text.trim()
    if (!/^postgres(ql)?:\/\//i.test(href)) return yield* Result.fail("")
    if (hasSeveralHosts(href)) return yield* Result.fail(oneHost)
    const url = URL.parse(href)
    if (url === null) return yield* Result.fail("")
    yield* Result.try({ try: () => decodeURIComponent(href), catch: () => "valid percent-encoding" })
    const { searchParams: parameters } = url
    if (parameters.has("target_session_attrs")) return yield* Result.fail(`${oneHost}, without target_session_attrs`)
    for (const [name, value] of parameters) {
      const names = Object.keys(supported)
      if (!names.includes(name)) return yield* Result.fail(`no other parameters than ${names.join(", ")}`)
      const values = supported[name]
      if (values?.includes(value) === false) return yield* Result.fail(`${name} ${values.join(", ")}`)
    }
    const host = parameters.get("host") ?? decodeURIComponent(url.hostname.replace(/^\[(.*)\]$/, "$1"))
    return {
      url: Redacted.make(href),
      host: host === "" ? "localhost" : host,
      port: Number(parameters.get("port") ?? (url.port === "" ? 5432 : url.port)),
      ssl: host.startsWith("/") ? false : yield* readSsl(parameters),
      applicationName: parameters.get("application_name") ?? "petstore",
      isPooled: parameters.get("pgbouncer") === "true"
    }
  })
