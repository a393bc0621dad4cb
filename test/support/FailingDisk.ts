/** Preloaded by a process: from the moment that the file `DISK_FAULT_FILE` exists, the operation in it fails on the WAL. */
import fs from "node:fs"
import { syncBuiltinESMExports } from "node:module"

const file = process.env.DISK_FAULT_FILE ?? ""
const { existsSync, fsyncSync, openSync, readFileSync, writeSync } = fs
const walFiles = new Set<number>()

const failIf = (operation: "fsync" | "write", code: string, descriptor: number): void => {
  if (!walFiles.has(descriptor) || !existsSync(file) || readFileSync(file, "utf8") !== operation) return
  throw Object.assign(new Error(`${code}: ${operation}`), { code })
}

Object.assign(fs, {
  openSync: (path: fs.PathLike, flags: fs.OpenMode, mode?: fs.Mode) => {
    const descriptor = openSync(path, flags, mode)
    if (String(path).includes("/pg_wal/")) walFiles.add(descriptor)
    else walFiles.delete(descriptor)
    return descriptor
  },
  fsyncSync: (descriptor: number) => {
    failIf("fsync", "EIO", descriptor)
    fsyncSync(descriptor)
  },
  writeSync: (descriptor: number, buffer: NodeJS.ArrayBufferView, offset: number, length: number, at: number) => {
    failIf("write", "ENOSPC", descriptor)
    return writeSync(descriptor, buffer, offset, length, at)
  }
})
syncBuiltinESMExports()
