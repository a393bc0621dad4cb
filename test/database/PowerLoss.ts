/**
 * A disk that loses its power. The model of the file system is POSIX's, without the order that journals add:
 *
 * 1. A write or a truncation is durable once an fsync of its file has returned. The file's size is part of it.
 * 2. A new, renamed, linked or deleted name is durable once an fsync of its directory has returned. The fsync of a file
 *    makes no name durable. A rename is atomic.
 * 3. Of the changes after the last fsync, any can be on the disk: all, none, or some. Half of the seeds choose names in
 *    their order, as a journal does, the others choose each by itself.
 * 4. An unsynced write can be torn: each of its pages of 4 KB is on the disk or not.
 */
import { Effect, Exit, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { setImmediate as nextTurn } from "node:timers/promises"
import { Worker } from "node:worker_threads"
import { AdminToken } from "../../src/management/AdminToken.ts"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import { inMemory, temporaryDirectoryIn } from "../support/Temporary.ts"
import type { Break, Change, Mark } from "./RecordedService.ts"
import { petOf, serviceIn } from "./RecordedWork.ts"

/** The model decides what is durable, and not the disk. */
const temporaryDirectory = temporaryDirectoryIn(inMemory)

/** Records the service in a worker. */
export const record = (broken: Break = "none") =>
  Effect.flatMap(temporaryDirectory, (directory) =>
    Effect.callback<ReadonlyArray<Change>>((resume) => {
      const worker = new Worker(new URL("./RecordedService.ts", import.meta.url), { workerData: { broken, directory } })
      worker.on("message", (result: ReadonlyArray<Change> | string) => {
        resume(typeof result === "string" ? Effect.die(new Error(result)) : Effect.succeed(result))
      })
      worker.on("error", () => resume(Effect.die(new Error("The worker failed, see its output"))))
      return Effect.promise(() => worker.terminate())
    }))

/** A generator of numbers from 0 to 1 (mulberry32). */
const randomFrom = (seed: number) => {
  let state = seed * 0x9e3779b1 | 0
  return (): number => {
    state = state + 0x6d2b79f5 | 0
    let t = Math.imul(state ^ state >>> 15, 1 | state)
    t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t
    return ((t ^ t >>> 14) >>> 0) / 2 ** 32
  }
}

const page = 4_096

/** Writes what the disk holds after a power loss. Returns the marks before it. */
export const cut = (changes: ReadonlyArray<Change>, seed: number, directory: string): ReadonlyArray<Mark> => {
  const next = randomFrom(seed)
  const marks = changes.flatMap(({ op }, at) => op === "mark" ? [at] : [])
  // Half of the cuts come directly after an acknowledgement, and the others anywhere.
  const [first = 0] = marks
  const anywhere = next() < 0.3 ? Math.floor(next() * first) : first + Math.floor(next() * (changes.length - first))
  const end = next() < 0.5 ? (marks[Math.floor(next() * marks.length)] ?? 0) + 1 : anywhere
  const kept = [0, 0.5, 1, next()][Math.floor(next() * 4)] ?? 0
  const lastKeptName = next() < 0.5 ? next() * end : undefined

  const syncedUntil = new Map<number, number>()
  changes.slice(0, end).forEach((change, at) => change.op === "sync" && syncedUntil.set(change.ino, at))
  const keepsName = (dir: number, at: number) =>
    at < (syncedUntil.get(dir) ?? -1) || (lastKeptName === undefined ? next() < kept : at < lastKeptName)

  const files = new Map<number, { data: Uint8Array; size: number }>()
  const directories = new Map<number, Map<string, number>>([[0, new Map()]])
  const entriesOf = (dir: number) => directories.get(dir) ?? new Map<string, number>()
  const write = (ino: number, at: number, data: Uint8Array): void => {
    const file = files.get(ino) ?? { data: new Uint8Array(), size: 0 }
    const size = at + data.length
    if (file.data.length < size) {
      const grown = new Uint8Array(Math.max(size, 2 * file.data.length))
      grown.set(file.data)
      file.data = grown
    }
    file.data.set(data, at)
    files.set(ino, { data: file.data, size: Math.max(size, file.size) })
  }
  const result: Array<Mark> = []
  for (const [at, change] of changes.slice(0, end).entries()) {
    if (change.op === "mark") result.push(change.mark)
    else if (change.op === "write") {
      if (at < (syncedUntil.get(change.ino) ?? -1)) write(change.ino, change.at, change.data)
      else {
        for (let from = 0; from < change.data.length;) {
          const until = Math.min(change.data.length, from + page - (change.at + from) % page)
          if (next() < kept) write(change.ino, change.at + from, change.data.subarray(from, until))
          from = until
        }
      }
    } else if (change.op === "truncate") {
      const file = files.get(change.ino)
      if (at < (syncedUntil.get(change.ino) ?? -1) || next() < kept) {
        if (file === undefined || file.size < change.size) write(change.ino, change.size, new Uint8Array())
        else {
          file.data.fill(0, change.size)
          file.size = change.size
        }
      }
    } else if (change.op !== "sync") {
      if (change.op === "create" && change.isDir) directories.set(change.ino, new Map())
      if (!keepsName(change.dir, at)) continue
      const entries = entriesOf(change.dir)
      if (change.op === "unlink" || change.op === "rename") entries.delete(change.name)
      if (change.op === "rename") entries.set(change.to, change.ino)
      if (change.op === "create" || change.op === "link") entries.set(change.name, change.ino)
    }
  }
  const restore = (ino: number, path: string): void => {
    const entries = directories.get(ino)
    if (entries === undefined) {
      const { data, size } = files.get(ino) ?? { data: new Uint8Array(), size: 0 }
      return writeFileSync(path, data.subarray(0, size), { mode: 0o600 })
    }
    if (ino !== 0) mkdirSync(path, 0o700)
    for (const [name, child] of entries) restore(child, join(path, name))
  }
  restore(0, directory)
  return result
}

/** Starts the service on the directory. Returns what it lacks, or has twice. */
export const faultsIn = Effect.fnUntraced(function*(directory: string, marks: ReadonlyArray<Mark>) {
  const check = Effect.gen(function*() {
    const [sql, pets] = [yield* SqlClient.SqlClient, yield* PetRepository]
    const faults: Array<string> = []
    const expect = (isTrue: boolean, fault: string) => void (isTrue || faults.push(fault))
    const rows = yield* sql<{ readonly name: string; readonly id: string }>`SELECT name, id::text AS id FROM pets`
    const stored = new Map(rows.map(({ id, name }) => [name, id]))
    expect(stored.size === rows.length, "a pet is there twice")
    const keys = yield* sql<{ readonly id: string; readonly isRevoked: boolean; readonly entries: string }>`
      SELECT id, revoked_at IS NOT NULL AS "isRevoked",
        (SELECT string_agg(action, ' ' ORDER BY audit_log.id) FROM audit_log WHERE key_id = k.id) AS entries
      FROM api_keys AS k`
    const orphans = yield* sql`SELECT FROM audit_log WHERE key_id NOT IN (SELECT id FROM api_keys)`
    expect(orphans.length === 0, "an audit entry has no key")
    for (const { entries, id, isRevoked } of keys) {
      expect(entries === (isRevoked ? "issue revoke" : "issue"), `the audit log of ${id} has ${entries}`)
    }
    const limits = yield* sql<
      { readonly keyId: string; readonly state: string }
    >`SELECT key_id AS "keyId", state FROM key_limits`
    for (const { id, kind, value } of marks) {
      const key = keys.find((row) => row.id === id)
      if (kind === "token") {
        expect(Redacted.value((yield* AdminToken).token) === value, "the admin token is another one")
      } else if (kind === "pet") expect(stored.get(id) === value, `pet ${id} is lost`)
      else if (kind === "replayable") {
        const { isReplay, item: pet } = yield* pets.create(petOf(id), { owner: "key_owner", key: id })
        expect(isReplay && String(pet.id) === value, `idempotency key ${id} is lost`)
      } else if (kind === "key") expect(key !== undefined, `key ${id} is lost`)
      else if (kind === "revoked") expect(key?.isRevoked === true, `the revocation of ${id} is lost`)
      else if (kind === "limits") {
        const state = limits.find(({ keyId }) => keyId === id)?.state ?? ""
        expect(state.includes(`"day"`) && state.includes(`"ban"`), `the counts or the ban of ${id} are lost: ${state}`)
      }
    }
    yield* pets.create(petOf("after"))
    return faults
  })
  const exit = yield* Effect.exit(Effect.provide(check, serviceIn(directory)))
  return Exit.isSuccess(exit) ? exit.value : [`the service does not start: ${String(exit.cause)}`]
})

/** Cuts the power once for each seed. Returns a line for each seed that lost something. */
export const losses = Effect.fnUntraced(function*(changes: ReadonlyArray<Change>, seeds: ReadonlyArray<number>) {
  const found = yield* Effect.forEach(seeds, (seed) =>
    Effect.scoped(Effect.gen(function*() {
      const directory = yield* temporaryDirectory
      const faults = yield* faultsIn(directory, cut(changes, seed, directory))
      // The embedded database never lets the event loop turn.
      yield* Effect.promise(() => nextTurn())
      return faults.length === 0 ? [] : [`seed ${seed}: ${faults.join("; ")}`]
    })))
  return found.flat()
})
