/** A PgBouncer in front of the PostgreSQL server of `TEST_DATABASE_URL`, or of another one. */
import { ConfigProvider, Effect, Layer } from "effect"
import { type ChildProcess, execFileSync, spawn } from "node:child_process"
import { once } from "node:events"
import { chmodSync, existsSync, writeFileSync } from "node:fs"
import { connect } from "node:net"
import { join } from "node:path"
import * as SqlApiKeys from "../../src/api-keys/SqlApiKeys.ts"
import * as Database from "../../src/database/Database.ts"
import * as SqlPetRepository from "../../src/pets/SqlPetRepository.ts"
import { freePort, random, temporaryDatabaseUrl } from "./Harness.ts"
import * as TemporaryDirectory from "./TemporaryDirectory.ts"

const program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].find(existsSync)

/** Names the program that is missing on this machine for suites behind PgBouncer. */
export const missing: string | undefined = program === undefined ? "there is no pgbouncer" : undefined

export const modes = ["session", "transaction"] as const

/** PgBouncer does not run as root. */
const user = process.getuid?.() === 0 ? { uid: Number(execFileSync("id", ["-u", "nobody"]).toString()) } : {}

const isListening = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1")
    socket.on("connect", () => resolve(true)).on("error", () => resolve(false)).on("connect", () => socket.destroy())
  })

/** Starts a PgBouncer in front of the server of `serverUrl`. The scope kills it. */
export const run = Effect.fnUntraced(function*(
  serverUrl: string,
  mode: typeof modes[number],
  settings: Readonly<Record<string, string>> = {}
) {
  const server = new URL(serverUrl)
  const port = yield* freePort
  const directory = yield* TemporaryDirectory.make("petstore-pgbouncer-")
  chmodSync(directory, 0o755)
  const users = join(directory, "users")
  writeFileSync(users, `"${server.username}" "${server.password}"\n`)
  const lines = Object.entries({
    listen_addr: "127.0.0.1",
    listen_port: port,
    unix_socket_dir: "",
    auth_type: "trust",
    auth_file: users,
    pool_mode: mode,
    ...settings
  }).map(([name, value]) => `${name} = ${value}`)
  const target = `host=${server.hostname} port=${server.port === "" ? 5432 : server.port}`
  const file = join(directory, "pgbouncer.ini")
  writeFileSync(file, ["[databases]", `* = ${target}`, "[pgbouncer]", ...lines, ""].join("\n"))
  let child: ChildProcess | undefined
  const start = Effect.promise(async () => {
    child = spawn(program ?? "", ["-q", file], { ...user, cwd: directory, stdio: "ignore" })
    while (!await isListening(port)) await new Promise((resolve) => setTimeout(resolve, 10))
  })
  const kill = Effect.promise(async () => {
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    child.kill("SIGKILL")
    await once(child, "exit")
  })
  yield* Effect.addFinalizer(() => kill)
  yield* start
  const url = new URL(serverUrl)
  url.hostname = "127.0.0.1"
  url.port = String(port)
  return { port, urlWithoutParameter: url.href, url: `${url.href}?pgbouncer=true`, start, kill }
})

/** The service's stores on a new database behind PgBouncer, as `DATABASE_URL` opens them. */
export const stores = modes.map((mode) => ({
  name: `PostgreSQL behind PgBouncer in ${mode} mode`,
  skip: process.env.TEST_DATABASE_URL === undefined || missing !== undefined,
  layer: Layer.unwrap(Effect.gen(function*() {
    const { url } = yield* run(yield* temporaryDatabaseUrl, mode)
    const environment = ConfigProvider.layer(ConfigProvider.fromUnknown({ DATABASE_URL: url }))
    return Layer.mergeAll(SqlPetRepository.layer, SqlApiKeys.layer).pipe(
      Layer.provide(Database.layer),
      Layer.provide(environment),
      Layer.provideMerge(random)
    )
  }))
}))
