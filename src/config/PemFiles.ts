/** Reads the certificates and private keys that connection strings name. */
import { Predicate, Result } from "effect"
import { X509Certificate } from "node:crypto"
import { readFileSync } from "node:fs"
import { createSecureContext, getCACertificates } from "node:tls"

/** A parameter of a connection string whose value is the path of a file. */
export interface FileParameter {
  readonly name: string
  readonly path: string
}

/** Options of `tls.connect`. */
export interface ClientCertificate {
  readonly cert: string
  readonly key: string
  readonly passphrase?: string
}

/** Describes in one line why a file cannot be used. The reason never contains a password. */
const reasonOf = (error: unknown): string =>
  Predicate.hasProperty(error, "message") ? String(error.message).split("\n", 1).join("") : "unreadable"

const unusable = ({ name, path }: FileParameter, reason: string): string =>
  `a usable file in ${name}, not ${path} (${reason})`

const read = (file: FileParameter): Result.Result<string, string> =>
  Result.try({ try: () => readFileSync(file.path, "utf8"), catch: (error) => unusable(file, reasonOf(error)) })

const certificate = /-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----[^-]+-----END (?:TRUSTED |X509 )?CERTIFICATE-----/g

/** Reads the certificates of authorities. Node ignores text that is no certificate, so it is checked here. */
export const readAuthorities = (file: FileParameter): Result.Result<ReadonlyArray<string>, string> =>
  Result.flatMap(read(file), (text) => {
    const certificates = text.match(certificate) ?? []
    if (certificates.length === 0) return Result.fail(unusable(file, "it has no certificate in PEM format"))
    return Result.try({
      try: () => certificates.map((pem) => new X509Certificate(pem).toString()),
      catch: (error) => unusable(file, reasonOf(error))
    })
  })

/** Reads a client certificate and its private key, and checks that they belong together. */
export const readClientCertificate = (
  certFile: FileParameter,
  keyFile: FileParameter,
  password: string | undefined
): Result.Result<ClientCertificate, string> =>
  Result.gen(function*() {
    const cert = yield* read(certFile)
    const key = yield* read(keyFile)
    const pair = { cert, key, ...(password === undefined ? {} : { passphrase: password }) }
    yield* Result.try({
      try: () => createSecureContext({ cert }),
      catch: (error) => unusable(certFile, reasonOf(error))
    })
    yield* Result.try({ try: () => createSecureContext(pair), catch: (error) => unusable(keyFile, reasonOf(error)) })
    return pair
  })

/** The authorities that the system trusts, or Mozilla's list, which Node has, on a system without any. */
export const systemAuthorities = (): ReadonlyArray<string> => {
  const system = getCACertificates("system")
  return system.length > 0 ? system : getCACertificates("bundled")
}
