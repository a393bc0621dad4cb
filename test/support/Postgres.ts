/** A PostgreSQL server for one test. The test can configure, stop, kill and freeze it. */
import { PgClient } from "@effect/sql-pg"
import { Effect } from "effect"
import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process"
import { chownSync, existsSync, globSync, readFileSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import type { Certificate } from "./Certificates.ts"
import { clientOn } from "./Databases.ts"
import { killChild } from "./Process.ts"
import { freePort, inMemory, makeTemplate, temporaryDirectoryIn } from "./Temporary.ts"

const bin = globSync("/usr/lib/postgresql/*/bin").toSorted().findLast((folder) => existsSync(join(folder, "initdb")))

export const isInstalled = bin !== undefined

const idOf = (option: string) => Number(execFileSync("id", [option, "postgres"]).toString())

/** Runs statements on a connection of their own. */
export const queryOn = (url: string) => <A, E>(use: (sql: PgClient.PgClient) => Effect.Effect<A, E>) =>
  Effect.scoped(Effect.provide(Effect.flatMap(PgClient.PgClient, use), clientOn(url)))

/** The user that the server runs as: PostgreSQL does not start as root. */
const user = process.getuid?.() === 0 ? { uid: idOf("-u"), gid: idOf("-g") } : {}

const execute = promisify(execFile)

export const command = (name: string, args: ReadonlyArray<string>, as = {}) =>
  Effect.promise(() => execute(join(bin ?? "", name), args, { ...as, cwd: tmpdir() }))

const initdb = (data: string) =>
  command("initdb", ["-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"], user)

/** Creates the files of an empty server as a copy, because `initdb` takes seconds. */
const initialize = Effect.fnUntraced(function*(data: string) {
  const fill = (template: string) =>
    Effect.andThen(initdb(data), Effect.promise(() => execute("mv", [data, join(template, "data")])))
  const template = yield* makeTemplate("postgres", fill)
  yield* Effect.promise(() => execute("cp", ["-a", join(template, "data"), data]))
})

/** How a standby connects to its primary. Without the timeout it would wait for a frozen primary for minutes. */
const connectionTo = (port: number) => `host=127.0.0.1 port=${port} user=postgres connect_timeout=2`

/** The certificate of a server, the authority of its clients, and lines of `pg_hba.conf` that come first. */
type Tls = Readonly<{ certificate: Certificate; clientAuthority?: Certificate; access?: ReadonlyArray<string> }>

const tlsSettings = (directory: string, { access = [], certificate, clientAuthority }: Tls) => {
  // The server requires to own its private key.
  const give = (source: string, name: string): string => {
    const target = join(directory, name)
    writeFileSync(target, readFileSync(source), { mode: 0o600 })
    if (user.uid !== undefined) chownSync(target, user.uid, user.gid)
    return target
  }
  const accessFile = join(directory, "data", "pg_hba.conf")
  writeFileSync(accessFile, [...access, readFileSync(accessFile, "utf8")].join("\n"))
  return {
    ssl: "on",
    ssl_cert_file: give(certificate.cert, "server.crt"),
    ssl_key_file: give(certificate.key, "server.key"),
    ssl_ca_file: clientAuthority === undefined ? "" : give(clientAuthority.cert, "clients.crt"),
    unix_socket_directories: directory
  }
}

/**
 * Starts a server with `settings`. With `primaryPort` it is an asynchronous standby of the server on that port. With
 * `tls` it has a Unix socket in `socketDirectory`. Its own connections, such as those of `admin`, use no TLS.
 */
export const run = Effect.fnUntraced(function*(settings: object = {}, primaryPort?: number, tls?: Tls) {
  const port = yield* freePort
  const directory = yield* temporaryDirectoryIn(inMemory)
  const data = join(directory, "data")
  if (user.uid !== undefined) chownSync(directory, user.uid, user.gid)
  yield* primaryPort === undefined
    ? initialize(data)
    : command("pg_basebackup", ["-d", connectionTo(primaryPort), "-D", data, "-R", "-c", "fast", "--no-sync"], user)
  const own = { port: String(port), listen_addresses: "127.0.0.1", unix_socket_directories: "" }
  const all = { ...own, ...(tls === undefined ? {} : tlsSettings(directory, tls)), ...settings }
  const options = Object.entries(all).flatMap(([name, value]) => ["-c", `${name}=${value}`])
  let server: ChildProcess | undefined

  const url = `postgres://postgres@127.0.0.1:${port}/postgres`
  const admin = queryOn(url)

  const start = Effect.gen(function*() {
    server = spawn(join(bin ?? "", "postgres"), ["-D", data, ...options], { ...user, cwd: directory, stdio: "ignore" })
    yield* Effect.eventually(Effect.andThen(Effect.sleep("20 millis"), admin((sql) => sql`SELECT 1`)))
  })
  const signal = (name: NodeJS.Signals) =>
    Effect.sync(() => {
      const pid = server?.pid
      if (pid === undefined || server?.exitCode !== null || server.signalCode !== null) return
      // Once it is stopped, its children stay the same.
      process.kill(pid, "SIGSTOP")
      const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").match(/\d+/g) ?? []
      for (const each of [...children.map(Number), pid]) process.kill(each, name)
    })
  const kill = Effect.andThen(signal("SIGKILL"), Effect.suspend(() => killChild(server)))
  yield* Effect.addFinalizer(() => kill)
  yield* start

  const promote = command("pg_ctl", ["promote", "-w", "-D", data], user)
  const [freeze, thaw] = [signal("SIGSTOP"), signal("SIGCONT")]
  return { port, url, socketDirectory: directory, admin, start, promote, kill, freeze, thaw }
})

type Server = Effect.Success<ReturnType<typeof run>>

/** Promotes the standby that received more of the log, so has each confirmed commit. Returns the new primary. */
export const failOver = Effect.fnUntraced(function*([one, two]: readonly [Server, Server]) {
  const received = ({ admin }: Server) =>
    admin((sql) => sql<{ readonly bytes: number }>`SELECT (pg_last_wal_receive_lsn() - '0/0')::float8 AS bytes`)
  const [[first], [second]] = [yield* received(one), yield* received(two)]
  const [primary, standby] = (first?.bytes ?? 0) >= (second?.bytes ?? 0) ? [one, two] : [two, one]
  yield* primary.promote
  const connection = `ALTER SYSTEM SET primary_conninfo = '${connectionTo(primary.port)}'`
  yield* standby.admin((sql) => Effect.andThen(sql.unsafe(connection), sql`SELECT pg_reload_conf()`))
  return primary
})
