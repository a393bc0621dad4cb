/** A PostgreSQL server of the test's own, which it may stop, kill, freeze and set up as it likes. */
import { PgClient } from "@effect/sql-pg"
import { Effect, Redacted } from "effect"
import { type ChildProcess, execFileSync, spawn } from "node:child_process"
import { once } from "node:events"
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { freePort } from "./Harness.ts"

const versions = "/usr/lib/postgresql"
const binaries = existsSync(versions)
  ? readdirSync(versions).map((version) => join(versions, version, "bin")).filter((bin) =>
    existsSync(join(bin, "initdb"))
  )
  : []
const bin = binaries.at(-1)

/** What the suites on it lack on this machine. */
export const missing: string | undefined = bin === undefined ? "there is no PostgreSQL server to start" : undefined

/** It does not run as root. */
const user = process.getuid?.() === 0
  ? {
    uid: Number(execFileSync("id", ["-u", "postgres"]).toString()),
    gid: Number(execFileSync("id", ["-g", "postgres"]).toString())
  }
  : {}

const childrenOf = (parent: number): ReadonlyArray<number> =>
  readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(Number).filter((pid) => {
    try {
      return Number(readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /s, "").split(" ")[1]) === parent
    } catch {
      return false
    }
  })

/**
 * Makes one with `settings`, started; both are gone when the scope closes. With `primaryPort` it is a standby of the
 * server on that port.
 */
export const run = Effect.fnUntraced(function*(settings: Readonly<Record<string, string>> = {}, primaryPort?: number) {
  const port = yield* freePort
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const path = mkdtempSync(join(tmpdir(), "petstore-postgres-"))
      if (user.uid !== undefined) execFileSync("chown", [`${user.uid}:${user.gid}`, path])
      const data = join(path, "data")
      const [program, args] = primaryPort === undefined
        ? ["initdb", ["-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8"]]
        : ["pg_basebackup", ["-D", data, "-R", "-c", "fast", "-d", `postgres://postgres@127.0.0.1:${primaryPort}`]]
      execFileSync(join(bin ?? "", program), args, { ...user, cwd: path, stdio: "ignore" })
      return path
    }),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  const options = Object.entries({
    port: String(port),
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
    ...settings
  }).flatMap(([name, value]) => ["-c", `${name}=${value}`])
  let server: ChildProcess | undefined

  const url = `postgres://postgres@127.0.0.1:${port}/postgres`
  /** Runs statements as the operator, on a connection of their own. */
  const admin = <A, E>(use: (sql: PgClient.PgClient) => Effect.Effect<A, E>) =>
    Effect.gen(function*() {
      return yield* use(yield* PgClient.PgClient)
    }).pipe(Effect.provide(PgClient.layer({ url: Redacted.make(url), maxConnections: 1 })), Effect.scoped)

  const start = Effect.gen(function*() {
    server = spawn(join(bin ?? "", "postgres"), ["-D", join(directory, "data"), ...options], {
      ...user,
      cwd: directory,
      stdio: "ignore"
    })
    yield* Effect.eventually(Effect.andThen(Effect.sleep("20 millis"), admin((sql) => sql`SELECT 1`)))
  })
  const signal = (name: NodeJS.Signals) =>
    Effect.sync(() => {
      const pid = server?.pid
      if (pid === undefined) return
      for (const each of [pid, ...childrenOf(pid)]) {
        try {
          process.kill(each, name)
        } catch {
          // It has ended meanwhile.
        }
      }
    })
  const ended = Effect.promise(async () => {
    if (server !== undefined && server.exitCode === null && server.signalCode === null) await once(server, "exit")
  })
  yield* Effect.addFinalizer(() => Effect.andThen(signal("SIGKILL"), ended))
  yield* start

  return {
    port,
    url,
    admin,
    start,
    /** Ends it in good order, whoever is connected. */
    stop: Effect.andThen(Effect.sync(() => server?.kill("SIGINT")), ended),
    kill: Effect.andThen(signal("SIGKILL"), ended),
    freeze: signal("SIGSTOP"),
    thaw: signal("SIGCONT")
  }
})
