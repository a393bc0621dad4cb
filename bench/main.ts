/**
 * Prints how fast the service starts and answers, on the embedded database and, where `TEST_DATABASE_URL` names a
 * server, on PostgreSQL in a database of its own.
 */
import { NodeRuntime } from "@effect/platform-node"
import { PgClient } from "@effect/sql-pg"
import { Console, Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { ApiKeys } from "../src/ApiKeys.ts"
import * as Database from "../src/Database.ts"
import * as EmbeddedDatabase from "../src/EmbeddedDatabase.ts"
import { random, temporaryDatabaseUrl, temporaryDirectory } from "../test/Harness.ts"
import { load } from "./load.ts"

const port = 18_080
const pets = 10_000
const seconds = 5
const connections = 32

/** `npm start` in a process group of its own, until it answers 200 to `key`, or to the key that it shows. */
const start = (env: Readonly<Record<string, string>>, knownKey?: string) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const startedAt = performance.now()
      const child = spawn("npm", ["start"], {
        env: {
          PATH: process.env.PATH,
          HOST: "127.0.0.1",
          PORT: String(port),
          MANAGEMENT_PORT: "0",
          LOG_LEVEL: "warn",
          ...env
        },
        stdio: ["ignore", "pipe", "inherit"],
        detached: true
      })
      let stdout = ""
      child.stdout.on("data", (chunk: Buffer) => {
        stdout += chunk.toString()
      })
      while (child.exitCode === null) {
        const key = knownKey ?? /psk_\w+/.exec(stdout)?.[0]
        const status = key === undefined ? undefined : await fetch(`http://127.0.0.1:${port}/v1/pets`, {
          headers: { authorization: `Bearer ${key}` }
        }).then((response) => response.status, () => undefined)
        if (key !== undefined && status === 200) return { child, key, milliseconds: performance.now() - startedAt }
        await new Promise((resolve) => setTimeout(resolve, 5))
      }
      throw new Error("The service did not start.")
    }),
    ({ child }) =>
      Effect.promise(() =>
        new Promise<void>((resolve) => {
          child.on("close", () => resolve())
          if (child.pid !== undefined) process.kill(-child.pid, "SIGTERM")
        })
      )
  )

const megabytes = (group: number): number => {
  const own = Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${group}/status`, "utf8"))?.[1]) / 1024
  const [child] = readFileSync(`/proc/${group}/task/${group}/children`, "utf8").trim().split(" ")
  return child === "" || child === undefined ? own : megabytes(Number(child))
}

/** Takes the limits off the one key, and fills the table. */
const prepare = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql`UPDATE api_keys SET plan = 'enterprise', per_minute = 2000000000, per_day = 2000000000`
  yield* sql`INSERT INTO pets (name, category_id, status)
    SELECT 'pet ' || n, n % 100, CASE WHEN n % 3 = 0 THEN 'sold' ELSE 'available' END
    FROM generate_series(1, ${pets}) AS n`
  yield* sql`ANALYZE`
})

const operations = (env: Readonly<Record<string, string>>, key: string) =>
  Effect.scoped(Effect.gen(function*() {
    const { child } = yield* start(env, key)
    const head = `Host: localhost\r\nAuthorization: Bearer ${key}\r\n`
    const body = `{"name":"Rex","categoryId":1,"status":"available"}`
    const requests = {
      "list of 20": { status: 200, request: `GET /v1/pets HTTP/1.1\r\n${head}\r\n` },
      "get": { status: 200, request: `GET /v1/pets/5000 HTTP/1.1\r\n${head}\r\n` },
      "create": {
        status: 201,
        request: `POST /v1/pets HTTP/1.1\r\n${head}Content-Type: application/json\r\n` +
          `Content-Length: ${body.length}\r\n\r\n${body}`
      }
    }
    for (const [name, { request, status }] of Object.entries(requests)) {
      yield* Effect.promise(() => load({ ports: [port], request, connections, seconds: 1 }))
      const measured = yield* Effect.promise(() => load({ ports: [port], request, connections, seconds }))
      yield* Console.log(
        `  ${name.padEnd(12)}${measured.requestsPerSecond.toFixed(0).padStart(7)} requests/s` +
          `   p50 ${measured.p50.toFixed(1)} ms   p99 ${measured.p99.toFixed(1)} ms` +
          (measured.statuses.keys().every((one) => one === status) ? "" : "   NOT ALL WITH THE STATUS EXPECTED")
      )
    }
    yield* Console.log(`  memory after the load: ${megabytes(child.pid ?? 0).toFixed(0)} MB`)
  }))

const embedded = Effect.gen(function*() {
  const DATA_DIR = yield* temporaryDirectory
  yield* Console.log("Embedded database")
  const first = yield* Effect.scoped(start({ DATA_DIR }))
  yield* Console.log(`  npm start to the first 200, first start:  ${first.milliseconds.toFixed(0)} ms`)
  const second = yield* Effect.scoped(start({ DATA_DIR }, first.key))
  yield* Console.log(`  npm start to the first 200, second start: ${second.milliseconds.toFixed(0)} ms`)
  yield* prepare.pipe(Effect.provide(EmbeddedDatabase.layer(DATA_DIR)))
  yield* operations({ DATA_DIR }, first.key)
})

const postgres = Effect.gen(function*() {
  const DATABASE_URL = yield* temporaryDatabaseUrl
  yield* Console.log("PostgreSQL")
  const database = Database.migrate.pipe(Layer.provideMerge(PgClient.layer({ url: Redacted.make(DATABASE_URL) })))
  const key = yield* Effect.gen(function*() {
    const apiKeys = yield* ApiKeys
    const issued = yield* apiKeys.issue({ name: "bench", plan: "free" })
    yield* prepare
    return Redacted.value(issued.key)
  }).pipe(Effect.provide(ApiKeys.layer.pipe(Layer.provide(random), Layer.provideMerge(database))))
  yield* operations({ DATABASE_URL }, key)
})

Effect.gen(function*() {
  yield* Console.log(
    `${connections} connections, ${pets} pets, ${seconds} s an operation, load and service on one machine`
  )
  yield* Effect.scoped(embedded)
  if (process.env.TEST_DATABASE_URL !== undefined) yield* Effect.scoped(postgres)
}).pipe(NodeRuntime.runMain)
