/** Directories that exist as long as a scope. */
import { Effect } from "effect"
import { mkdtempSync } from "node:fs"
import { rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"

/** Removes a directory. It retries for a second, because a program that a test has killed can still write to it. */
export const remove = (path: string) =>
  Effect.promise(() => rm(path, { recursive: true, force: true, maxRetries: 10, retryDelay: 20 }))

/** Creates a directory whose name begins with `prefix`. The scope removes it. */
export const make = (prefix: string) =>
  Effect.acquireRelease(Effect.sync(() => mkdtempSync(join(tmpdir(), prefix))), remove)
