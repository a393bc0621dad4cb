import { Config, Data, Effect, FileSystem, Layer, Option, Redacted } from "effect"
import { AdminClient } from "../client/AdminClient.ts"
import { read, textForm } from "../config/SettingForms.ts"
import { adminTokenFile, Settings } from "../config/Settings.ts"

export class CommandError extends Data.TaggedError("CommandError")<{ readonly message: string }> {}

const withScheme = (text: string): string => /^[a-z][a-z\d+.-]*:\/\//i.test(text) ? text : `http://${text}`

const isAddress = (text: string): boolean => {
  const url = URL.parse(withScheme(text))
  return url !== null && /^https?:$/.test(url.protocol) && url.href === `${url.origin}/`
}

const baseUrl = Effect.gen(function*() {
  const port = yield* Settings.managementPort.config
  const address = textForm("an address like http://127.0.0.1:9090, without a path", isAddress)
  const configured = yield* Config.option(read("PETSTORE_ADMIN_URL", address))
  return Option.match(configured, { onNone: () => `http://127.0.0.1:${port}`, onSome: withScheme })
})

const adminToken = Effect.gen(function*() {
  const configured = yield* Config.option(Settings.adminToken.config)
  if (Option.isSome(configured)) return configured.value
  const file = `${yield* Settings.dataDir.config}/${adminTokenFile}`
  const files = yield* FileSystem.FileSystem
  const message = `There is no admin token: set ADMIN_TOKEN or the service's DATA_DIR (${file} cannot be read).`
  return yield* files.readFileString(file).pipe(
    Effect.map((token) => Redacted.make(token.trim())),
    Effect.mapError(() => new CommandError({ message }))
  )
})

export const adminClientLayer = Layer.unwrap(Effect.gen(function*() {
  const [url, token] = [yield* baseUrl, yield* adminToken]
  return AdminClient.layer({ baseUrl: url, token, timeout: "10 seconds", retry: { times: 0 } })
}))
