/**
 * Parses `DATABASE_URL`. `RedisUrl.ts` also uses the checks of URL parameters, and of the TLS files that these name.
 *
 * A parser fails with what the URL must have. `urlForm` (`SettingForms.ts`) completes the error message: "a port from 1
 * to 65535" becomes "Expected postgres://… with a port from 1 to 65535", and "" becomes "Expected postgres://…". These
 * texts quote no part of the URL except file paths and the word of `sslmode`, because other parts may contain an
 * unencoded password.
 */
import { Predicate, Redacted, Result } from "effect"
import { X509Certificate } from "node:crypto"
import { readFileSync } from "node:fs"
import { type ConnectionOptions, createSecureContext, getCACertificates } from "node:tls"
import * as Brand from "../api/Brand.ts"

export type DatabaseUrl = Result.Result.Success<ReturnType<typeof parseDatabaseUrl>>

const words: Readonly<Record<string, ReadonlyArray<string> | undefined>> = {
  sslmode: ["disable", "require", "verify-ca", "verify-full"],
  pgbouncer: ["true", "false"]
}

export const checkParameters = (found: URLSearchParams, names: ReadonlyArray<string>): Result.Result<void, string> => {
  for (const [name, value] of found) {
    if (!names.includes(name)) {
      const others = names.length === 0 ? " (those for TLS need rediss://)" : ` but ${names.join(", ")}`
      return Result.fail(`no parameters${others}`)
    }
    if (words[name]?.includes(value) === false) return Result.fail(`${name} ${words[name].join(", ")}`)
  }
  return Result.void
}

export const isDecodable = (text: string): boolean => Result.isSuccess(Result.try(() => decodeURIComponent(text)))

const readPem = (name: string, path: string, check: (text: string) => unknown): Result.Result<string, string> =>
  Result.try({
    try: () => {
      const text = readFileSync(path, "utf8")
      check(text)
      return text
    },
    catch: (error) => {
      const [reason] = String(Predicate.hasProperty(error, "message") ? error.message : error).split("\n")
      return `a usable file in ${name}, not ${path} (${reason})`
    }
  })

const systemAuthorities = (): Array<string> => {
  const system = getCACertificates("system")
  return system.length > 0 ? system : getCACertificates("bundled")
}

export const readTls = (
  parameters: URLSearchParams,
  [caName, certName, keyName, passwordName]: readonly [string, string, string, string]
): Result.Result<ConnectionOptions, string> =>
  Result.gen(function*() {
    const [ca, cert, key] = [parameters.get(caName), parameters.get(certName), parameters.get(keyName)]
    const passphrase = parameters.get(passwordName)
    const authorities = ca === null ? {} : {
      ca: ca === "system" ? systemAuthorities() : yield* readPem(caName, ca, (text) => new X509Certificate(text))
    }
    if (cert === null && key === null) return authorities
    if (cert === null || key === null) return yield* Result.fail(`both ${certName} and ${keyName}, or neither`)
    const certificate = {
      cert: yield* readPem(certName, cert, (text) => new X509Certificate(text)),
      ...passphrase !== null && { passphrase }
    }
    const keyText = yield* readPem(keyName, key, (text) => createSecureContext({ ...certificate, key: text }))
    return { ...authorities, ...certificate, key: keyText }
  })

const postgresTls = ["sslrootcert", "sslcert", "sslkey", "sslpassword"] as const
const postgresNames = "host port user password dbname application_name options connect_timeout pgbouncer sslmode"
  .split(" ").concat(postgresTls)

const isLocal = (host: string): boolean => /^(?:|(?:.*\.)?localhost\.?|127(?:\.\d+){3}|::1)$/i.test(host)

const readSsl = (
  parameters: URLSearchParams,
  host: string
): Result.Result<false | ConnectionOptions, string> => {
  const mode = parameters.get("sslmode") ?? (isLocal(host) ? "disable" : "require")
  if (mode !== "verify-full" && parameters.get("sslrootcert") === "system") {
    return Result.fail("sslmode verify-full for sslrootcert=system")
  }
  if (mode === "disable" || !parameters.has("sslmode")) {
    return postgresTls.some((name) => parameters.has(name))
      ? Result.fail("sslmode require, verify-ca or verify-full, because the URL has other TLS parameters")
      : Result.succeed(mode === "disable" ? false : { rejectUnauthorized: false, checkServerIdentity: () => undefined })
  }
  if (mode !== "require" && !parameters.has("sslrootcert")) {
    return Result.fail(`sslrootcert (a file path${mode === "verify-full" ? ` or "system"` : ""}) for sslmode ${mode}`)
  }
  return Result.map(readTls(parameters, postgresTls), (files) => ({
    ...files,
    // As in libpq (PostgreSQL's manual, "Protection Provided in Different Modes"), `require` verifies the certificate
    // if `sslrootcert` is set, and only `verify-full` verifies the host name.
    rejectUnauthorized: files.ca !== undefined,
    ...mode !== "verify-full" && { checkServerIdentity: () => undefined }
  }))
}

export const parseDatabaseUrl = (text: string) =>
  Result.gen(function*() {
    const href = text.trim()
    const [, hosts] = /^postgres(?:ql)?:\/\/(?:[^@/?]*@)?([^/?]*)/i.exec(href) ?? []
    if (hosts === undefined) return yield* Result.fail("")
    const url = URL.parse(href)
    const isList = [hosts, url?.searchParams.get("host")].some((names) => names?.includes(","))
    if (isList || url?.searchParams.has("target_session_attrs") === true) {
      return yield* Result.fail(
        "one host, without target_session_attrs: a server, or an address that reaches the primary, such as HAProxy's"
      )
    }
    const portText = url?.searchParams.get("port") ?? /:(\d+)$/.exec(hosts)?.[1] ?? "5432"
    const port = /^\d+$/.test(portText) ? Number(portText) : 0
    if (port < 1 || port > 65_535) return yield* Result.fail("a port from 1 to 65535")
    if (url === null || !isDecodable(href)) return yield* Result.fail("a percent-encoded user and password: %40 for @")
    const { searchParams: parameters } = url
    yield* checkParameters(parameters, postgresNames)
    const host = parameters.get("host") ?? decodeURIComponent(url.hostname.replace(/^\[(.*)\]$/, "$1"))
    const [path, user] = [url.pathname.slice(1), url.username].map(decodeURIComponent)
    const names = [parameters.get("dbname"), path, parameters.get("user"), user]
    return {
      url: Redacted.make(href),
      host: host === "" ? "localhost" : host,
      port,
      database: names.find((name) => name !== null && name !== "") ?? undefined,
      ssl: host.startsWith("/") ? false : yield* readSsl(parameters, host),
      applicationName: parameters.get("application_name") ?? Brand.name,
      isPooled: parameters.get("pgbouncer") === "true"
    } as const
  })
