import { Effect } from "effect"
import { mkdtempSync } from "node:fs"
import { rm } from "node:fs/promises"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"

/** Creates a directory. The scope removes it, with retries, because a killed program can still write to it. */
export const temporaryDirectoryIn = (parent: string) =>
  Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(parent, "petstore-test-"))),
    (path) => Effect.promise(() => rm(path, { recursive: true, force: true, maxRetries: 10, retryDelay: 20 }))
  )

export const temporaryDirectory = temporaryDirectoryIn(tmpdir())

const givenPorts = new Set<number>()

/** Returns a new free port below 32768, where those begin that Linux gives to outgoing connections now and then. */
export const freePort: Effect.Effect<number> = Effect.callback((resume) => {
  const port = 10_000 + Math.floor(Math.random() * 12_000)
  if (givenPorts.has(port)) return resume(freePort)
  givenPorts.add(port)
  const server = createServer().once("error", () => resume(freePort))
  server.listen(port, "127.0.0.1", () => server.close(() => resume(Effect.succeed(port))))
})
