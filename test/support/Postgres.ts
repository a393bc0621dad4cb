/** A PostgreSQL server for one test. The test can configure, stop, kill and freeze it. */
import { PgClient } from "@effect/sql-pg"
import { Effect, Redacted } from "effect"
import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process"
import { randomUUID } from "node:crypto"
import { once } from "node:events"
import { chownSync, existsSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import type { Certificate } from "./Certificates.ts"
import { freePort } from "./Harness.ts"
import * as TemporaryDirectory from "./TemporaryDirectory.ts"

const versions = "/usr/lib/postgresql"
const binaries = existsSync(versions)
  ? readdirSync(versions).map((version) => join(versions, version, "bin")).filter((bin) =>
    existsSync(join(bin, "initdb"))
  )
  : []
const bin = binaries.at(-1)

/** Names the programs that are missing on this machine for suites that start PostgreSQL. */
export const missing: string | undefined = bin === undefined ? "there is no PostgreSQL server to start" : undefined

/** The user that the server runs as: PostgreSQL does not start as root. */
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

const execute = promisify(execFile)

/** Runs one of PostgreSQL's commands as the user that owns the files of servers. */
const command = (name: string, args: ReadonlyArray<string>) =>
  Effect.promise(() => execute(join(bin ?? "", name), args, { ...user, cwd: tmpdir() }))

/** Runs one of PostgreSQL's commands as the user of the tests. */
const asTester = (name: string, args: ReadonlyArray<string>) =>
  Effect.promise(() => execute(join(bin ?? "", name), args))

/** The README's commands for a backup, and for a restore while the service runs. */
export const dump = (url: string, file: string) => asTester("pg_dump", ["-Fc", "-f", file, url])
export const restore = (url: string, file: string) =>
  asTester("pg_restore", ["--clean", "--if-exists", "--single-transaction", "-d", url, file])

/** Creates the files of a server in a directory. */
type Initialize = (data: string) => Effect.Effect<unknown>

/** The files of an empty server, for all suites of a run: `initdb` takes seconds. */
const template = join(process.env.TEST_TEMPLATE_DIRECTORY ?? tmpdir(), "postgres")

const copy = (from: string, to: string) => Effect.promise(() => execute("cp", ["-a", from, to]))

const initializeEmpty: Initialize = Effect.fnUntraced(function*(data) {
  if (existsSync(template)) {
    yield* copy(template, data)
  } else {
    yield* command("initdb", ["-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"])
    const own = `${template}-${randomUUID()}`
    yield* copy(data, own)
    // Another server may have made the template meanwhile.
    if (!existsSync(template)) renameSync(own, template)
  }
})

/** How a standby connects to its primary. Without the timeout it would wait for a frozen primary for minutes. */
const connectionTo = (port: number) => `host=127.0.0.1 port=${port} user=postgres connect_timeout=2`

const copyOf = (port: number): Initialize => (data) =>
  command("pg_basebackup", ["-d", connectionTo(port), "-D", data, "-R", "-c", "fast", "--no-sync"])

/**
 * Starts a server with `settings`. The scope stops it and removes its files. With `primaryPort` it is an asynchronous
 * standby of the server on that port.
 */
export const run = (settings: Readonly<Record<string, string>> = {}, primaryPort?: number) =>
  serve(settings, primaryPort === undefined ? initializeEmpty : copyOf(primaryPort))

/**
 * Promotes the standby that has received more of the primary's log, and makes the other follow it. A commit that the
 * primary confirmed is on that standby. Returns the new primary.
 */
export const failOver = Effect.fnUntraced(function*(
  [one, two]: readonly [Server, Server]
) {
  const received = (server: typeof one) =>
    Effect.map(
      server.admin((sql) =>
        sql<{ readonly bytes: number }>`SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0')::float8 AS bytes`
      ),
      ([row]) => row?.bytes ?? 0
    )
  const [primary, standby] = (yield* received(one)) >= (yield* received(two)) ? [one, two] : [two, one]
  yield* primary.promote
  yield* standby.follow(primary.port)
  return primary
})

type Server = Effect.Success<ReturnType<typeof run>>

/** The certificate of a server, the authority of its clients, and lines of `pg_hba.conf` that come first. */
export interface Tls {
  readonly certificate: Certificate
  readonly clientAuthority?: Certificate
  readonly access?: ReadonlyArray<string>
}

/** Starts a server with TLS. Its Unix socket is in `socketDirectory`. Its own connections use no TLS. */
export const runWithTls = (tls: Tls) => serve({}, initializeEmpty, tls)

/** Copies a file to `target`. The server requires to own its private key. */
const give = (source: string, target: string): string => {
  writeFileSync(target, readFileSync(source), { mode: 0o600 })
  if (user.uid !== undefined) chownSync(target, user.uid, user.gid)
  return target
}

const tlsSettings = (directory: string, { access = [], certificate, clientAuthority }: Tls) => {
  const accessFile = join(directory, "data", "pg_hba.conf")
  writeFileSync(accessFile, [...access, readFileSync(accessFile, "utf8")].join("\n"))
  return {
    ssl: "on",
    ssl_cert_file: give(certificate.cert, join(directory, "server.crt")),
    ssl_key_file: give(certificate.key, join(directory, "server.key")),
    ssl_ca_file: clientAuthority === undefined ? "" : give(clientAuthority.cert, join(directory, "clients.crt")),
    unix_socket_directories: directory
  }
}

const serve = Effect.fnUntraced(function*(
  settings: Readonly<Record<string, string>>,
  initialize: Initialize,
  tls?: Tls
) {
  const port = yield* freePort
  const directory = yield* TemporaryDirectory.make("petstore-postgres-")
  if (user.uid !== undefined) chownSync(directory, user.uid, user.gid)
  yield* initialize(join(directory, "data"))
  const options = Object.entries({
    port: String(port),
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
    ...(tls === undefined ? {} : tlsSettings(directory, tls)),
    ...settings
  }).flatMap(([name, value]) => ["-c", `${name}=${value}`])
  let server: ChildProcess | undefined

  const url = `postgres://postgres@127.0.0.1:${port}/postgres`
  /** Runs statements on a separate connection. */
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
          // The process has exited meanwhile.
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
    socketDirectory: directory,
    admin,
    start,
    /** Cuts a standby off from its primary: it receives no more transactions. The primary keeps running. */
    stopReceiving: Effect.gen(function*() {
      yield* admin((sql) => sql`ALTER SYSTEM SET primary_conninfo = ''`)
      yield* admin((sql) => sql`SELECT pg_reload_conf()`)
      while ((yield* admin((sql) => sql`SELECT FROM pg_stat_wal_receiver`)).length > 0) yield* Effect.sleep("20 millis")
    }),
    /** Makes a standby follow the server on `primaryPort`. */
    follow: (primaryPort: number) =>
      admin((sql) =>
        Effect.andThen(
          sql.unsafe(`ALTER SYSTEM SET primary_conninfo = '${connectionTo(primaryPort)}'`),
          sql`SELECT pg_reload_conf()`
        )
      ),
    /** Promotes a standby. */
    promote: command("pg_ctl", ["promote", "-w", "-D", join(directory, "data")]),
    /** Shuts the server down in PostgreSQL's fast mode, which does not wait for clients to disconnect. */
    stop: Effect.andThen(Effect.sync(() => server?.kill("SIGINT")), ended),
    kill: Effect.andThen(signal("SIGKILL"), ended),
    freeze: signal("SIGSTOP"),
    thaw: signal("SIGCONT")
  }
})
