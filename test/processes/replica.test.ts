/** Tests a process that reads from a standby, beside one that uses the primary. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import * as Load from "../support/Load.ts"
import * as Postgres from "../support/Postgres.ts"
import { type Running, start } from "../support/Process.ts"
import * as Redis from "../support/Redis.ts"

const ADMIN_TOKEN = "adm_test"
const Issued = Schema.Struct({ id: Schema.String, key: Schema.String })
const ErrorBody = Schema.fromJsonString(Schema.Struct({ code: Schema.String, message: Schema.String }))

/** Calls the admin API. */
const admin = ({ management }: Running, method: string, path: string, body?: unknown) =>
  Effect.promise(async () => {
    const response = await fetch(management + path, {
      method,
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
      ...body !== undefined && { body: JSON.stringify(body) }
    })
    return { status: response.status, text: await response.text() }
  })

const issue = (service: Running, limits: { readonly perMinute: number; readonly perDay: number }) =>
  Effect.flatMap(
    admin(service, "POST", "/admin/keys", { name: "test", plan: "enterprise", limits }),
    ({ text }) => Schema.decodeEffect(Schema.fromJsonString(Issued))(text)
  )

/** Repeats `condition` until it holds, and returns the seconds that it took. */
const secondsUntil = Effect.fnUntraced(function*(condition: Effect.Effect<boolean>) {
  const startedAt = performance.now()
  while (!(yield* condition)) yield* Effect.sleep("20 millis")
  return (performance.now() - startedAt) / 1000
})

describe.skipIf(Postgres.missing !== undefined || Redis.missing !== undefined)(
  "A process that reads from a standby",
  () => {
    it.live(
      "serves reads, and its data is as old as the standby's and at most a second older",
      () =>
        Effect.gen(function*() {
          const primary = yield* Postgres.run()
          const standby = yield* Postgres.run({}, primary.port)
          const redis = yield* Redis.run
          yield* redis.start
          const env = { ADMIN_TOKEN, REDIS_URL: redis.url }
          const hosts = `127.0.0.1:${primary.port},127.0.0.1:${standby.port}`
          const writer = yield* start({ ...env, DATABASE_URL: `postgres://postgres@${hosts}/postgres` })
          const reader = yield* start({
            ...env,
            DATABASE_URL: `postgres://postgres@${hosts}/postgres?target_session_attrs=standby`
          })
          const { id, key } = yield* issue(writer, { perMinute: 100_000, perDay: 1_000_000 })
          const status = (service: Running, path: string) =>
            Effect.map(Load.request(service.address, key, path), (outcome) => outcome.status)
          yield* secondsUntil(Effect.map(status(reader, "/v1/pets"), (code) => code === 200))

          // A transaction in progress on the primary does not hide later changes from the reader.
          yield* Effect.forkChild(
            primary.admin((sql) =>
              sql.withTransaction(Effect.andThen(sql`SELECT pg_current_xact_id()`, sql`SELECT pg_sleep(30)`))
            )
          )
          yield* Load.request(writer.address, key)
          assert.isBelow(yield* secondsUntil(Effect.map(status(reader, "/v1/pets/1"), (code) => code === 200)), 1.5)
          yield* primary.admin((sql) => sql`UPDATE pets SET name = 'renamed' WHERE id = 1`)
          const isRenamed = Effect.map(
            Load.request(reader.address, key, "/v1/pets/1"),
            ({ body }) => body.includes("renamed")
          )
          assert.isBelow(yield* secondsUntil(isRenamed), 1.5)

          // The standby receives nothing more: the reader does not see what the writer has acknowledged.
          yield* standby.stopReceiving
          yield* Load.request(writer.address, key)
          yield* Effect.sleep("1500 millis")
          assert.strictEqual(yield* status(writer, "/v1/pets/2"), 200)
          assert.strictEqual(yield* status(reader, "/v1/pets/2"), 404)
          yield* standby.follow(primary.port)
          assert.isBelow(yield* secondsUntil(Effect.map(status(reader, "/v1/pets/2"), (code) => code === 200)), 8)

          yield* admin(writer, "DELETE", `/admin/keys/${id}`)
          assert.isBelow(yield* secondsUntil(Effect.map(status(reader, "/v1/pets/1"), (code) => code === 401)), 1.5)
        }),
      60_000
    )

    it.live(
      "responds 503 to creates and to changes of keys, and counts requests with the other processes",
      () =>
        Effect.gen(function*() {
          const primary = yield* Postgres.run()
          const standby = yield* Postgres.run({}, primary.port)
          const redis = yield* Redis.run
          yield* redis.start
          const env = { ADMIN_TOKEN, REDIS_URL: redis.url }
          const writer = yield* start({ ...env, DATABASE_URL: primary.url })
          const reader = yield* start({ ...env, DATABASE_URL: `${standby.url}?target_session_attrs=standby` })
          const { key } = yield* issue(writer, { perMinute: 10, perDay: 100 })
          const outcomes: Array<Load.Outcome> = []
          const request = (service: Running, path?: string) =>
            Effect.tap(Load.request(service.address, key, path), (outcome) =>
              Effect.sync(() => {
                // Requests with a key that the standby does not have yet are not counted for it.
                if (outcome.status !== 401) outcomes.push(outcome)
              }))
          yield* secondsUntil(Effect.map(request(reader, "/v1/pets?limit=1"), ({ status }) => status === 200))

          const created = yield* request(reader)
          assert.strictEqual(created.status, 503)
          assert.strictEqual(created.retryAfter, "1")
          assert.deepStrictEqual(yield* Schema.decodeEffect(ErrorBody)(created.body), {
            code: "service_unavailable",
            message: "The database accepts no writes at the moment. Reads work."
          })
          const issued = yield* admin(reader, "POST", "/admin/keys", { name: "test", plan: "free" })
          assert.strictEqual(issued.status, 503)

          for (let i = 0; i < 12; i++) yield* request(i % 2 === 0 ? writer : reader, "/v1/pets?limit=1")
          const counted = outcomes.map(({ status }) => status)
          assert.deepStrictEqual(counted.slice(10).filter((status) => status !== 429), [], String(counted))
          assert.notInclude(counted.slice(0, 10), 429)
          // Only the create and the new key were tried to write, nothing in the background.
          assert.lengthOf(reader.stderr().match(/read-only/g) ?? [], 2)
        }),
      60_000
    )

    it.live(
      "does not start without Redis, and waits for a process that migrates the primary",
      () =>
        Effect.gen(function*() {
          const primary = yield* Postgres.run()
          const standby = yield* Postgres.run({}, primary.port)
          const redis = yield* Redis.run
          yield* redis.start
          const DATABASE_URL = `${standby.url}?target_session_attrs=standby`
          const { code, stderr } = yield* Effect.flip(start({ DATABASE_URL }))
          assert.strictEqual(code, 1)
          assert.include(
            stderr,
            "REDIS_URL: expected a value, because DATABASE_URL selects a standby (target_session_attrs)"
          )
          const [reader] = yield* Effect.all([
            start({ DATABASE_URL, REDIS_URL: redis.url }),
            Effect.andThen(Effect.sleep("2 seconds"), start({ DATABASE_URL: primary.url }))
          ], { concurrency: "unbounded" })
          assert.include(reader.stderr(), "Waiting for the database: The database has schema version 0")
        }),
      60_000
    )
  }
)
