/** Connects the command to the management port: its address, and the admin token. */
import { Config, Data, Effect, FileSystem, Layer, Option, Redacted, Result } from "effect"
import { AdminClient } from "../client/PetstoreClient.ts"
import * as Settings from "../config/Settings.ts"
import { CommandError } from "./CommandError.ts"

/** The environment variable with the address of the management port. */
export const addressVariable = "PETSTORE_ADMIN_URL"

/** The value of `PETSTORE_ADMIN_URL` is invalid. */
export class InvalidAddress extends Data.TaggedError("InvalidAddress")<{ readonly message: string }> {}

/**
 * Parses an address with or without a scheme. Without one it is http, and has `defaultPort` if it has no port. Fails
 * with the reason why the address is invalid, which never repeats the address: it can contain a password.
 */
export const parseAddress = (text: string, defaultPort: number): Result.Result<string, string> => {
  const [, scheme] = /^([a-z][a-z\d+.-]*):\/\//i.exec(text.trim()) ?? []
  if (scheme !== undefined && !/^https?$/i.test(scheme)) {
    return Result.fail(`has the scheme ${scheme}, which is not http or https`)
  }
  const url = URL.parse(scheme === undefined ? `http://${text.trim()}` : text.trim())
  if (url === null || /\s/.test(text.trim())) return Result.fail("is not an address")
  if (url.username !== "" || url.password !== "") return Result.fail("has a user name or a password")
  if (url.pathname !== "/" || url.search !== "" || url.hash !== "") return Result.fail("has a path, a query or a hash")
  // A URL without a port has that of its scheme. `host:80` has a port, although `URL` removes it.
  if (scheme === undefined && url.port === "" && !/:\d+\/?$/.test(text.trim())) url.port = String(defaultPort)
  return Result.succeed(url.origin)
}

/** The address of the management port: `PETSTORE_ADMIN_URL`, else `MANAGEMENT_PORT` on this machine. */
export const baseUrl = Effect.gen(function*() {
  const port = yield* Settings.managementPort.config
  const address = yield* Config.option(Config.String(addressVariable))
  return yield* Option.match(address, {
    onNone: () => Effect.succeed(`http://127.0.0.1:${port}`),
    onSome: (text) =>
      Effect.fromResult(parseAddress(text, port)).pipe(
        Effect.mapError((reason) =>
          new InvalidAddress({
            message: `${addressVariable}: the value ${reason}. Expected localhost:9090 or http://host:port`
          })
        )
      )
  })
})

const configuredToken = Config.option(Settings.adminToken.config)
const tokenFile = Config.map(Settings.dataDir.config, (directory) => `${directory}/admin-token`)

/** Names the place from which the command takes the admin token. */
export const tokenSource = Effect.map(
  Effect.all([configuredToken, tokenFile]),
  ([configured, file]) => Option.isSome(configured) ? Settings.adminToken.name : file
)

/** The admin token: `ADMIN_TOKEN`, else the file `admin-token` that the service keeps in its `DATA_DIR`. */
const adminToken = Effect.gen(function*() {
  const configured = yield* configuredToken
  if (Option.isSome(configured)) return Redacted.make(Redacted.value(configured.value).trim())
  const file = yield* tokenFile
  const files = yield* FileSystem.FileSystem
  return yield* files.readFileString(file).pipe(
    Effect.map((token) => Redacted.make(token.trim())),
    Effect.mapError(() =>
      new CommandError({
        message: `There is no admin token: set ADMIN_TOKEN, or DATA_DIR to the service's (${file} cannot be read).`
      })
    )
  )
})

/** The client of the management port. It reports an invalid address and a missing token before any request. */
export const adminClientLayer = Layer.unwrap(Effect.gen(function*() {
  return AdminClient.layer({
    baseUrl: yield* baseUrl,
    token: yield* adminToken,
    timeout: "10 seconds",
    retry: { times: 0 }
  })
}))
