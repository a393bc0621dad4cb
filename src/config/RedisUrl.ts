/** Reads the parameters of Redis URLs for TLS, with the names that redis-py and Celery give them. */
import { Redacted, Result } from "effect"
import { isIP } from "node:net"
import * as PemFiles from "./PemFiles.ts"

/** Options of `tls.connect`. None for a URL without TLS. */
export interface RedisTls extends Partial<PemFiles.ClientCertificate> {
  readonly ca?: Array<string>
  readonly servername?: string
}

const form = /^rediss?:\/\/[^/?#]*(?:\/\d*)?(?:\?[^#]*)?$/
const names = ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_password"]

/**
 * Reads the files that a URL names. The certificate and the host are always verified, by the authorities in
 * `ssl_ca_certs` or those that Node trusts. The failure completes "Expected a URL with …", and has no password.
 */
export const parse = (text: string): Result.Result<RedisTls, string> =>
  Result.gen(function*() {
    const url = URL.parse(text)
    if (url === null || !form.test(url.href) || !isDecodable(text)) return yield* Result.fail("")
    const isTls = url.protocol === "rediss:"
    const query = url.searchParams
    const unknown = [...query.keys()].find((name) => name.startsWith("ssl") && !names.includes(name))
    if (unknown !== undefined) return yield* Result.fail(`the ssl parameters ${names.join(", ")}, not ${unknown}`)
    if (!isTls && names.some((name) => query.has(name))) return yield* Result.fail("rediss:// for ssl parameters")
    if (!isTls) return {}
    const [ca, cert, key, password] = names.map((name) => query.get(name) ?? undefined)
    if ((cert === undefined) !== (key === undefined)) {
      return yield* Result.fail("both ssl_certfile and ssl_keyfile, or none")
    }
    const host = url.hostname.replace(/^\[|\]$/g, "")
    return {
      // Node sends no server name by itself.
      ...(isIP(host) === 0 ? { servername: host } : {}),
      ...(ca === undefined
        ? {}
        : { ca: [...yield* PemFiles.readAuthorities({ name: "ssl_ca_certs", path: ca })] }),
      ...(cert === undefined || key === undefined ? {} : yield* PemFiles.readClientCertificate(
        { name: "ssl_certfile", path: cert },
        { name: "ssl_keyfile", path: key },
        password
      ))
    }
  })

const isDecodable = (text: string): boolean =>
  Result.isSuccess(Result.try({ try: () => decodeURIComponent(text), catch: () => "" }))

/** The options of a URL that was valid at the start. Each connection reads the files anew: they can be replaced. */
export const readTls = (url: Redacted.Redacted): RedisTls =>
  Result.getOrThrowWith(parse(Redacted.value(url)), (problem) => new Error(`REDIS_URL needs ${problem}`))
