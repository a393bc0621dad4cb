import { Effect } from "effect"
import { existsSync, mkdirSync, mkdtempSync, statfsSync, symlinkSync } from "node:fs"
import { rm } from "node:fs/promises"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { until } from "./Process.ts"

/** Creates a directory. The scope removes it, with retries, because a killed program can still write to it. */
export const temporaryDirectoryIn = (parent: string) =>
  Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(parent, "petstore-test-"))),
    (path) => Effect.promise(() => rm(path, { recursive: true, force: true, maxRetries: 10, retryDelay: 20 }))
  )

export const temporaryDirectory = temporaryDirectoryIn(tmpdir())

const memory = "/dev/shm"
const maxUsedBytes = 2 ** 31
const hasMemory = existsSync(memory) && statfsSync(memory).bavail * statfsSync(memory).bsize > maxUsedBytes

/**
 * The parent of directories in memory, or of others if there is no room. A new database waits for the disk a thousand
 * times, and a node of a Redis cluster that waits for it replies to no command.
 */
export const inMemory = hasMemory ? memory : tmpdir()

const canCreate = (path: string): boolean => {
  try {
    mkdirSync(path)
    return true
  } catch (error) {
    if (existsSync(path)) return false
    throw error
  }
}

/**
 * Makes a directory that all tests of a run copy, and returns its path. `fill` runs once, and other tests wait for it,
 * because it takes seconds.
 */
export const makeTemplate = <E, R>(name: string, fill: (directory: string) => Effect.Effect<unknown, E, R>) =>
  Effect.gen(function*() {
    const path = join(process.env.TEST_TEMPLATE_DIRECTORY ?? "", name)
    const unfinished = `${path}-unfinished`
    if (canCreate(unfinished)) {
      yield* fill(unfinished)
      symlinkSync(unfinished, path)
    } else yield* until(() => existsSync(path), 60)
    return path
  })

const givenPorts = new Set<number>()
const maxWorkers = 8
const worker = Number(process.env.VITEST_POOL_ID ?? 0) % maxWorkers

/**
 * Returns a new free port that no other worker returns. It is below 20000, because a node of a Redis cluster also
 * listens at its port plus 10000, and Linux gives those from 32768 on to outgoing connections.
 */
export const freePort: Effect.Effect<number> = Effect.callback((resume) => {
  const port = 10_000 + maxWorkers * Math.floor(Math.random() * 10_000 / maxWorkers) + worker
  if (givenPorts.has(port)) return resume(freePort)
  givenPorts.add(port)
  const server = createServer().once("error", () => resume(freePort))
  server.listen(port, "127.0.0.1", () => server.close(() => resume(Effect.succeed(port))))
})
