/**
 * Runs in a worker: the service's layers on a new data directory, while each change of a file is recorded. A worker has
 * functions of `node:fs` of its own, so replacing them changes nothing outside. Marks say what has been acknowledged.
 */
import fs from "node:fs"
import { syncBuiltinESMExports } from "node:module"
import { basename, dirname, relative, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import { inspect } from "node:util"
import { parentPort, workerData } from "node:worker_threads"

export type Mark =
  | {
    readonly kind: "started" | "token" | "pet" | "key" | "revoked" | "limits"
    readonly id: string
    readonly value: string
  }
  | { readonly kind: "replayable"; readonly id: string; readonly value: string }

export type Change =
  | {
    readonly op: "create"
    readonly dir: number
    readonly name: string
    readonly ino: number
    readonly isDir: boolean
  }
  | { readonly op: "link"; readonly dir: number; readonly name: string; readonly ino: number }
  | { readonly op: "rename"; readonly dir: number; readonly name: string; readonly to: string; readonly ino: number }
  | { readonly op: "unlink"; readonly dir: number; readonly name: string }
  | { readonly op: "write"; readonly ino: number; readonly at: number; readonly data: Uint8Array }
  | { readonly op: "truncate"; readonly ino: number; readonly size: number }
  | { readonly op: "sync"; readonly ino: number }
  | { readonly op: "mark"; readonly mark: Mark }

/** A break of the file layer, as if its code left a sync out, or acknowledged before the sync. */
export type Break = "all" | "cluster" | "directories" | "late" | "none" | "wal"

const { broken, directory }: { readonly broken: Break; readonly directory: string } = workerData
const changes: Array<Change> = []
const late: Array<Change> = []
const tree = new Map<number, Map<string, number>>([[0, new Map()]])
const descriptors = new Map<number, { readonly ino: number; readonly path: string }>()
let lastIno = 0

/** The inode of a path in the directory, or undefined. */
const find = (path: string): number | undefined => {
  const parts = relative(directory, resolve(path)).split("/").filter((part) => part !== "")
  if (parts[0] === "..") return undefined
  return parts.reduce<number | undefined>((ino, name) => tree.get(ino ?? -1)?.get(name), 0)
}
const placeOf = (path: string) => {
  const dir = find(dirname(resolve(path)))
  return dir === undefined
    ? undefined
    : { dir, name: basename(path), entries: tree.get(dir) ?? new Map<string, number>() }
}
const created = (path: string, isDir: boolean): void => {
  const place = placeOf(path)
  if (place === undefined || place.entries.has(place.name)) return
  const ino = ++lastIno
  place.entries.set(place.name, ino)
  if (isDir) tree.set(ino, new Map())
  changes.push({ op: "create", dir: place.dir, name: place.name, ino, isDir })
}
const linked = (from: string, path: string): void => {
  const [ino, place] = [find(from), placeOf(path)]
  if (ino === undefined || place === undefined) return
  place.entries.set(place.name, ino)
  changes.push({ op: "link", dir: place.dir, name: place.name, ino })
}
const renamed = (from: string, to: string): void => {
  const [source, target, ino] = [placeOf(from), placeOf(to), find(from)]
  if (source === undefined || target === undefined || ino === undefined) return
  if (source.dir !== target.dir) throw new Error(`The model has no rename between directories: ${from}, ${to}`)
  source.entries.delete(source.name)
  target.entries.set(target.name, ino)
  changes.push({ op: "rename", dir: source.dir, name: source.name, to: target.name, ino })
}
const unlinked = (path: string): void => {
  const place = placeOf(path)
  if (place?.entries.delete(place.name) !== true) return
  changes.push({ op: "unlink", dir: place.dir, name: place.name })
}
const opened = (descriptor: number, path: string): void => {
  const ino = find(path)
  if (ino === undefined) descriptors.delete(descriptor)
  else descriptors.set(descriptor, { ino, path: relative(directory, resolve(path)) })
}
const wrote = (
  descriptor: number,
  buffer: NodeJS.ArrayBufferView,
  offset: number,
  length: number,
  at: number
): void => {
  const file = descriptors.get(descriptor)
  if (file === undefined) return
  const data = Uint8Array.from(new Uint8Array(buffer.buffer, buffer.byteOffset + offset, length))
  changes.push({ op: "write", ino: file.ino, at, data })
}
const truncated = (ino: number | undefined, size: number): void => {
  if (ino !== undefined) changes.push({ op: "truncate", ino, size })
}
const synced = (descriptor: number): void => {
  const file = descriptors.get(descriptor)
  if (file === undefined || broken === "all") return
  const isWal = file.path.startsWith("pgdata/pg_wal/0")
  if (broken === "wal" && isWal) return
  if (broken === "directories" && tree.has(file.ino)) return
  if (broken === "cluster" && file.path.startsWith("pgdata.new")) return
  if (broken === "late" && isWal) late.push({ op: "sync", ino: file.ino })
  else changes.push({ op: "sync", ino: file.ino })
}
const mark = (value: Mark): void => {
  changes.push({ op: "mark", mark: value }, ...late.splice(0))
}

const original = { ...fs }
type Done<A extends ReadonlyArray<unknown>> = (error: Error | null, ...results: A) => void
Object.assign(fs, {
  openSync: (path: fs.PathLike, flags: fs.OpenMode, mode?: fs.Mode) => {
    const descriptor = original.openSync(path, flags, mode)
    const text = path instanceof URL ? fileURLToPath(path) : String(path)
    created(text, false)
    opened(descriptor, text)
    return descriptor
  },
  writeSync: (descriptor: number, buffer: NodeJS.ArrayBufferView, offset: number, length: number, at: number) => {
    const written = original.writeSync(descriptor, buffer, offset, length, at)
    wrote(descriptor, buffer, offset, written, at)
    return written
  },
  writeFileSync: (path: string, data: string, options?: fs.WriteFileOptions) => {
    original.writeFileSync(path, data, options)
    created(path, false)
  },
  mkdirSync: (path: string, options?: fs.MakeDirectoryOptions) => {
    original.mkdirSync(path, options)
    created(path, true)
  },
  renameSync: (from: string, to: string) => {
    original.renameSync(from, to)
    renamed(from, to)
  },
  unlinkSync: (path: string) => {
    original.unlinkSync(path)
    unlinked(path)
  },
  rmdirSync: (path: string) => {
    original.rmdirSync(path)
    unlinked(path)
  },
  truncateSync: (path: string, size: number) => {
    original.truncateSync(path, size)
    truncated(find(path), size)
  },
  ftruncateSync: (descriptor: number, size: number) => {
    original.ftruncateSync(descriptor, size)
    truncated(descriptors.get(descriptor)?.ino, size)
  },
  fsyncSync: (descriptor: number) => {
    original.fsyncSync(descriptor)
    synced(descriptor)
  },
  open: (path: string, flags: fs.OpenMode, ...rest: [Done<[number?]>] | [fs.Mode, Done<[number?]>]) => {
    const [mode, done] = rest.length === 1 ? [undefined, rest[0]] : rest
    original.open(path, flags, mode, (error, descriptor) => {
      if (error !== null) return done(error)
      created(path, false)
      opened(descriptor, path)
      done(null, descriptor)
    })
  },
  write: (descriptor: number, buffer: Uint8Array, offset: number, length: number, at: number, done: Done<[number]>) =>
    original.write(descriptor, buffer, offset, length, at, (error, written) => {
      if (error === null) wrote(descriptor, buffer, offset ?? 0, written, at ?? 0)
      done(error, written)
    }),
  fsync: (descriptor: number, done: Done<[]>) =>
    original.fsync(descriptor, (error) => {
      if (error === null) synced(descriptor)
      done(error)
    }),
  link: (from: string, to: string, done: Done<[]>) =>
    original.link(from, to, (error) => {
      if (error === null) linked(from, to)
      done(error)
    }),
  rm: (path: string, options: fs.RmOptions, done: Done<[]>) =>
    original.rm(path, options, (error) => {
      if (error === null) unlinked(path)
      done(error)
    })
})
syncBuiltinESMExports()

const { runService } = await import("./RecordedWork.ts")
// An error of Effect cannot be sent to another thread, but its text can.
const send = parentPort?.postMessage.bind(parentPort)
await runService(directory, mark).then(() => send?.(changes), (error) => send?.(inspect(error)))
