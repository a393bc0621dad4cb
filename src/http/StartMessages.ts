/** The log lines of a start: where each port listens, and where an operator finds what comes next. */
import { Effect } from "effect"
import { HttpServer } from "effect/http"
import { basename, join, relative } from "node:path"
import { adminTokenPlace } from "../api-keys/AdminToken.ts"
import { localUrl } from "../config/LocalUrl.ts"

/** The `petstore` command, as it is called in the current directory: with npm in a checkout, else the built file. */
const petstoreCommand = (): string => {
  if (basename(import.meta.filename).endsWith(".ts")) return "npm run petstore --"
  const file = join(import.meta.dirname, "../cli.js")
  const path = relative(process.cwd(), file)
  return `node ${path.startsWith("..") ? file : path}`
}

/** Logs the address of the API, and that of its documentation. */
export const logApi = Effect.flatMap(HttpServer.HttpServer, (server) =>
  Effect.logInfo(
    `Listening on ${HttpServer.formatAddress(server.address)}, with documentation at ${localUrl(server)}/docs`
  ))

/** Logs the address of the management port, the place of the admin token, and the command that issues keys. */
export const logManagement = Effect.gen(function*() {
  const { address } = yield* HttpServer.HttpServer
  const place = yield* adminTokenPlace
  const url = HttpServer.formatAddress(address)
  yield* Effect.logInfo(`Management on ${url}, with a console for browsers; the admin token is in ${place}`)
  yield* Effect.logInfo(`Issue API keys with: ${petstoreCommand()} keys issue --name NAME`)
})
