/** Certificate authorities, and certificates that they issue, for one test. Needs the program `openssl`. */
import { Effect } from "effect"
import { execFileSync } from "node:child_process"
import { chmodSync, existsSync, writeFileSync } from "node:fs"
import { basename, join } from "node:path"
import { temporaryDirectory } from "./Temporary.ts"

const program = "/usr/bin/openssl"

export const isInstalled = existsSync(program)

export type Certificate = Readonly<Record<"cert" | "key", string>>

/** Makes a certificate authority in a directory of its own, which the scope removes. */
export const makeAuthority = Effect.map(temporaryDirectory, (directory) => {
  // Servers run as another user and read their files here.
  chmodSync(directory, 0o755)
  const openssl = (...args: ReadonlyArray<string>) =>
    void execFileSync(program, args, { cwd: directory, stdio: "ignore" })
  const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"]
  const files = (name: string) => ({ cert: join(directory, `${name}.crt`), key: join(directory, `${name}.key`) })
  const authority = files("ca")
  // Each authority has a name of its own, or its certificates look as if another one had issued them.
  const subject = ["-subj", `/CN=Authority ${basename(directory)}`]
  openssl("req", "-x509", ...newKey, ...subject, "-keyout", authority.key, "-out", authority.cert)
  let count = 0
  return {
    ...authority,
    /** `altNames` are like `DNS:localhost`. `isExpired` ones ended yesterday, and `password` encrypts the key. */
    issue(commonName: string, { altNames = "", isExpired = false, password = "" } = {}): Certificate {
      const name = String(++count)
      const { cert, key } = files(name)
      const [request, extensions] = [`${name}.csr`, `${name}.ext`]
      writeFileSync(join(directory, extensions), altNames === "" ? "" : `subjectAltName=${altNames}\n`)
      openssl("req", "-new", ...newKey, "-subj", `/CN=${commonName}`, "-keyout", key, "-out", request)
      // OpenSSL 3.0 accepts a negative number of days, and has no option for a start in the past.
      const issuer = ["-CA", authority.cert, "-CAkey", authority.key, "-CAcreateserial"]
      const days = ["-days", isExpired ? "-1" : "3", "-extfile", extensions]
      openssl("x509", "-req", "-in", request, ...issuer, ...days, "-out", cert)
      if (password === "") return { cert, key }
      const encrypted = `${key}.encrypted`
      openssl("pkey", "-in", key, "-aes256", "-passout", `pass:${password}`, "-out", encrypted)
      return { cert, key: encrypted }
    }
  }
})
