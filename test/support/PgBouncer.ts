/** A PgBouncer in front of the PostgreSQL server of `TEST_DATABASE_URL`, or of another one. */
import { Effect, Layer } from "effect"
import { execFileSync } from "node:child_process"
import { chmodSync, existsSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as SqlPetRepository from "../../src/pets/SqlPetRepository.ts"
import { databaseAt, random, sqlApiKeys, temporaryDatabaseUrl } from "./Databases.ts"
import { runProgram, untilListening } from "./Process.ts"
import { freePort, temporaryDirectory } from "./Temporary.ts"

const program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].find(existsSync)

export const isInstalled = program !== undefined

const user = process.getuid?.() === 0 ? { uid: Number(execFileSync("id", ["-u", "nobody"]).toString()) } : {}

/** Runs a PgBouncer in front of the server of `serverUrl`. The scope kills it. */
export const run = Effect.fnUntraced(function*(serverUrl: string, mode: "session" | "transaction") {
  const url = new URL(serverUrl)
  const port = yield* freePort
  const directory = yield* temporaryDirectory
  chmodSync(directory, 0o755)
  const users = join(directory, "users")
  writeFileSync(users, `"${url.username}" "${url.password}"\n`)
  const target = `* = host=${url.hostname} port=${url.port === "" ? 5432 : url.port}`
  const own = ["listen_addr = 127.0.0.1", `listen_port = ${port}`, "unix_socket_dir =", `pool_mode = ${mode}`]
  const lines = [...own, "auth_type = trust", `auth_file = ${users}`, "server_login_retry = 1"]
  const file = join(directory, "pgbouncer.ini")
  writeFileSync(file, ["[databases]", target, "[pgbouncer]", ...lines, ""].join("\n"))
  yield* runProgram(program ?? "", ["-q", file], { ...user, cwd: directory, stdio: "ignore" })
  yield* untilListening(port)
  url.host = `127.0.0.1:${port}`
  return { urlWithoutParameter: url.href, url: `${url.href}?pgbouncer=true` }
})

/** The service's stores on a new database behind PgBouncer, as `DATABASE_URL` opens them. */
export const stores = (["session", "transaction"] as const).map((mode) => ({
  name: `PostgreSQL behind PgBouncer in ${mode} mode`,
  skip: process.env.TEST_DATABASE_URL === undefined || !isInstalled,
  layer: Layer.unwrap(Effect.gen(function*() {
    const { url } = yield* run(yield* temporaryDatabaseUrl, mode)
    const services = Layer.merge(SqlPetRepository.layer, sqlApiKeys)
    return Layer.provideMerge(Layer.provide(services, databaseAt(url)), random)
  }))
}))
