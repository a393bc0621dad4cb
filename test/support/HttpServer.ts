/** HTTP servers of tests. */
import { Effect } from "effect"
import { createServer, type RequestListener } from "node:http"
import { freePort } from "./Harness.ts"

/** Serves requests on this machine for as long as the scope lasts. Returns the URL. */
export const serve = Effect.fnUntraced(function*(onRequest: RequestListener) {
  const port = yield* freePort
  yield* Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>>((resume) => {
      const server = createServer(onRequest)
      server.listen(port, "127.0.0.1", () => resume(Effect.succeed(server)))
    }),
    (server) =>
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void))
        server.closeAllConnections()
      })
  )
  return `http://127.0.0.1:${port}`
})
