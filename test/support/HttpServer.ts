/** HTTP servers of tests. */
import { Effect } from "effect"
import { once } from "node:events"
import { createServer, type RequestListener } from "node:http"
import { freePort } from "./Harness.ts"

/** Serves requests on this machine for as long as the scope lasts. Returns the URL. */
export const serve = Effect.fnUntraced(function*(onRequest: RequestListener) {
  const port = yield* freePort
  const server = createServer(onRequest)
  yield* Effect.acquireRelease(
    Effect.promise(() => once(server.listen(port, "127.0.0.1"), "listening")),
    () => Effect.sync(() => server.close().closeAllConnections())
  )
  return `http://127.0.0.1:${port}`
})
