/** Certificate authorities, and certificates that they issue, for one test. Needs the program `openssl`. */
import { Effect } from "effect"
import { execFileSync } from "node:child_process"
import { chmodSync, existsSync, writeFileSync } from "node:fs"
import { basename, join } from "node:path"
import * as TemporaryDirectory from "./TemporaryDirectory.ts"

const program = "/usr/bin/openssl"

/** Names the program that is missing on this machine for suites that make certificates. */
export const missing: string | undefined = existsSync(program) ? undefined : "there is no openssl"

/** The files of a certificate and its private key. */
export interface Certificate {
  readonly cert: string
  readonly key: string
}

export interface Authority extends Certificate {
  /**
   * Issues a certificate for `commonName`. `altNames` are subject alternative names like `DNS:localhost`. With
   * `isExpired` it was valid until yesterday, and with `password` its key is encrypted.
   */
  readonly issue: (commonName: string, options?: {
    readonly altNames?: string
    readonly isExpired?: boolean
    readonly password?: string
  }) => Certificate
}

const openssl = (directory: string, args: ReadonlyArray<string>) =>
  void execFileSync(program, args, { cwd: directory, stdio: "ignore" })

/** Makes a certificate authority in a directory of its own, which the scope removes. */
export const makeAuthority = Effect.map(
  TemporaryDirectory.make("petstore-ca-"),
  (directory): Authority => {
    // Servers run as another user and read their files here.
    chmodSync(directory, 0o755)
    const newKey = ["-newkey", "rsa:2048", "-noenc"]
    const files = (name: string): Certificate => ({
      cert: join(directory, `${name}.crt`),
      key: join(directory, `${name}.key`)
    })
    const authority = files("ca")
    // Each authority has a name of its own, or its certificates look as if another one had issued them.
    const subject = ["-subj", `/CN=Authority ${basename(directory)}`]
    openssl(directory, ["req", "-x509", ...newKey, ...subject, "-keyout", authority.key, "-out", authority.cert])
    let count = 0
    return {
      ...authority,
      issue(commonName, { altNames, isExpired = false, password } = {}) {
        const { cert, key } = files(`${++count}`)
        const request = join(directory, `${count}.csr`)
        const extensions = join(directory, `${count}.ext`)
        writeFileSync(extensions, altNames === undefined ? "" : `subjectAltName=${altNames}\n`)
        openssl(directory, ["req", "-new", ...newKey, "-subj", `/CN=${commonName}`, "-keyout", key, "-out", request])
        // OpenSSL 3.0 accepts a negative number of days, and has no option for a start in the past.
        const issuer = ["-CA", authority.cert, "-CAkey", authority.key, "-CAcreateserial"]
        const days = ["-days", isExpired ? "-1" : "3", "-extfile", extensions]
        openssl(directory, ["x509", "-req", "-in", request, ...issuer, ...days, "-out", cert])
        if (password !== undefined) {
          openssl(directory, [
            "pkey",
            "-in",
            key,
            "-aes256",
            "-passout",
            `pass:${password}`,
            "-out",
            `${key}.encrypted`
          ])
          return { cert, key: `${key}.encrypted` }
        }
        return { cert, key }
      }
    }
  }
)
