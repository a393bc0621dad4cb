import type { PGlite } from "@electric-sql/pglite"
import { NodeFS } from "@electric-sql/pglite/nodefs"
import { Predicate } from "effect"
import { close, fsync, fsyncSync, open, readdirSync } from "node:fs"
import { dirname, join } from "node:path"
import { promisify } from "node:util"
import { syncDirectory } from "./DataDirectory.ts"

/** A file or directory that PGlite has open. `nfd` is Node's file descriptor. */
interface Stream {
  readonly nfd: number
  readonly node: FileNode
}

interface FileNode {
  readonly name: string
  readonly parent: FileNode
}

/** PGlite's functions for files and directories (Emscripten's NODEFS). They throw `FS.ErrnoError`. */
interface NodeFiles {
  readonly realPath: (node: FileNode) => string
  readonly node_ops: {
    mknod(parent: FileNode, name: string, mode: number, dev: number): FileNode
    rename(node: FileNode, directory: FileNode, name: string): void
    setattr(node: FileNode, attributes: object): void
    rmdir(parent: FileNode, name: string): void
    unlink(parent: FileNode, name: string): void
  }
  readonly stream_ops: {
    fsync?: (stream: Stream) => number
    setattr(stream: Stream, attributes: object): void
    write(stream: Stream, buffer: Uint8Array, offset: number, length: number, position: number): number
  }
}

interface Errors {
  readonly ErrnoError: new(errno: number) => Error & { readonly errno: number }
}

/** These methods of PGlite are undocumented. A version without them fails at its start instead of losing data later. */
const isNodeFiles = (files: object): files is NodeFiles =>
  ["realPath", "node_ops", "stream_ops"].every((name) => Predicate.hasProperty(files, name))
const hasErrors = (files: object): files is Errors => Predicate.hasProperty(files, "ErrnoError")

type Options = Parameters<NodeFS["init"]>[1]
type Module = Parameters<NonNullable<Options["preRun"]>[number]>[0]

/** The errors after which a file may lack data that PostgreSQL has written, with their numbers in PGlite (WASI). */
const fatal = [
  { errno: 19, code: "EDQUOT", meaning: "the disk quota is exceeded" },
  { errno: 22, code: "EFBIG", meaning: "the file is too large" },
  { errno: 29, code: "EIO", meaning: "the disk failed" },
  { errno: 51, code: "ENOSPC", meaning: "the disk is full" },
  { errno: 69, code: "EROFS", meaning: "the file system is read-only" }
]
const ioError = 29

const [openFile, syncFile, closeFile] = [promisify(open), promisify(fsync), promisify(close)]

/**
 * Makes a directory and everything in it durable. Syncs all files at once, because a file system can write several in
 * one step.
 */
export const syncTree = async (directory: string): Promise<void> => {
  const entries = readdirSync(directory, { withFileTypes: true, recursive: true })
  await Promise.all([directory, ...entries.map(({ name, parentPath }) => join(parentPath, name))].map(async (path) => {
    const descriptor = await openFile(path, "r")
    await syncFile(descriptor).finally(() => closeFile(descriptor))
  }))
}

/**
 * PGlite's files on a disk, which survive a power loss. PGlite's own `NodeFS` has no fsync.
 *
 * Laws:
 * 1. When an fsync succeeds, the file is durable, and so are all earlier creations, renames and deletions of files.
 * 2. A write is complete or fails: after a short write, the rest is written too, unless the disk reports an error.
 * 3. The first failure after which a file may lack its data calls `onFailure`, and all later changes fail too.
 *    PostgreSQL then panics, but PGlite swallows the panic, so the caller of PGlite must discard its response.
 */
export class DurableFiles extends NodeFS {
  readonly #onFailure: (reason: string) => void
  #hasFailed = false

  constructor(directory: string, onFailure: (reason: string) => void) {
    super(directory)
    this.#onFailure = onFailure
  }

  override async init(database: PGlite, options: Options) {
    const { emscriptenOpts } = await super.init(database, options)
    const preRun = [...emscriptenOpts.preRun ?? [], (module: Module) => this.#install(module)]
    return { emscriptenOpts: { ...emscriptenOpts, preRun } }
  }

  #install({ FS, NODEFS: files }: Module): void {
    if (!isNodeFiles(files) || !hasErrors(FS)) throw new Error("This version of PGlite has other functions for files")
    const { node_ops: nodes, realPath, stream_ops: streams } = files
    const changed = new Set<string>()
    const guard = <A>(operation: string, node: FileNode, run: () => A): A => {
      if (this.#hasFailed) throw new FS.ErrnoError(ioError)
      try {
        return run()
      } catch (error) {
        const cause = fatal.find(({ errno }) => error instanceof FS.ErrnoError && errno === error.errno)
        if (cause !== undefined) {
          this.#hasFailed = true
          this.#onFailure(`${cause.code}, ${cause.meaning}: ${operation} ${realPath(node)}`)
        }
        throw error
      }
    }
    /**
     * A failed fsync is fatal whatever its error, because a second fsync can succeed although the data was not written.
     */
    const sync = (run: () => void): void => {
      try {
        run()
      } catch (error) {
        const cause = fatal.find(({ code }) => Predicate.hasProperty(error, "code") && code === error.code)
        throw new FS.ErrnoError(cause?.errno ?? ioError)
      }
    }
    /** Runs a change of the entries of `parent`. The next fsync makes it durable. */
    const changing = <A>(operation: string, parent: FileNode, run: () => A): A =>
      guard(operation, parent, () => {
        const result = run()
        changed.add(realPath(parent))
        return result
      })
    const { mknod, rename, rmdir, setattr, unlink } = nodes
    const { setattr: setStreamAttributes, write } = streams

    streams.fsync = (stream) =>
      guard("fsync", stream.node, () => {
        sync(() => fsyncSync(stream.nfd))
        for (const directory of changed) {
          sync(() => syncDirectory(directory))
          changed.delete(directory)
        }
        return 0
      })
    streams.write = (stream, buffer, offset, length, position) =>
      guard("write", stream.node, () => {
        let written = 0
        do written += write(stream, buffer, offset + written, length - written, position + written)
        while (written < length)
        return written
      })
    streams.setattr = (stream, attributes) =>
      guard("truncate", stream.node, () => setStreamAttributes(stream, attributes))
    nodes.setattr = (node, attributes) => guard("truncate", node, () => setattr(node, attributes))
    nodes.rename = (node, directory, name) =>
      guard("rename", node, () => {
        changed.add(dirname(realPath(node))).add(realPath(directory))
        rename(node, directory, name)
      })
    nodes.mknod = (parent, name, mode, dev) => changing("create", parent, () => mknod(parent, name, mode, dev))
    nodes.unlink = (parent, name) => changing("unlink", parent, () => unlink(parent, name))
    nodes.rmdir = (parent, name) =>
      changing("rmdir", parent, () => {
        rmdir(parent, name)
        changed.delete(join(realPath(parent), name))
      })
  }
}
