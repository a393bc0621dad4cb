/** Tests lists of many API keys, while a service serves other requests. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it, layer } from "@effect/vitest"
import { Context, DateTime, Effect, Layer, Redacted, Stream } from "effect"
import { SqlClient } from "effect/sql"
import { spawn } from "node:child_process"
import { fileURLToPath } from "node:url"
import { boundStatement, pageStatement } from "../../src/api-keys/SqlApiKeyStore.ts"
import { AdminClient } from "../../src/client/AdminClient.ts"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import { dataDirectory, issueKey, temporaryDatabaseUrl } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"
import { start } from "../support/Process.ts"

const cli = fileURLToPath(new URL("../../src/cli.ts", import.meta.url))
const ADMIN_TOKEN = "adm_0123456789abcdef"
const keyCount = 100_000

/** The heap of the command, in which 100,000 keys do not fit: each has eleven fields, five of them objects or texts. */
const NODE_OPTIONS = "--max-old-space-size=64"

/** Inserts the keys. One half has the same creation time. The other half follows, one key per microsecond. */
const insertKeys = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql`INSERT INTO api_keys (id, name, plan, per_minute, per_day, created_at)
    SELECT 'key_' || md5(n::text), 'key ' || n, 'free', 60, 1000,
      '2026-01-01T00:00:00Z'::timestamptz + GREATEST(0, n - ${keyCount / 2}::int) * interval '1 microsecond'
    FROM generate_series(1, ${keyCount}::int) n`
})

const client = (url: string) => PgClient.layer({ url: Redacted.make(url) })

/** Returns the ids of all keys in list order, as the database sorts them. */
const sortedIds = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly id: string }>`SELECT id FROM api_keys ORDER BY created_at, id COLLATE "C"`
  return rows.map(({ id }) => id)
})

/** A running service with many keys. `key` is the secret of a key whose limits are too high to reach. */
class Service extends Context.Service<Service, {
  readonly address: string
  readonly management: string
  readonly key: string
  /** The ids of all keys in list order, as the database sorts them. */
  readonly ids: ReadonlyArray<string>
  readonly database: Layer.Layer<SqlClient.SqlClient, unknown>
}>()("test/KeyList/Service") {
  static readonly layer = Layer.effect(
    Service,
    Effect.gen(function*() {
      const DATABASE_URL = yield* temporaryDatabaseUrl
      const { address, management } = yield* start({ DATABASE_URL, ADMIN_TOKEN })
      const database = client(DATABASE_URL)
      yield* Effect.provide(insertKeys, database)
      const key = yield* issueKey(database)
      return Service.of({ address, management, key, database, ids: yield* Effect.provide(sortedIds, database) })
    })
  )
}

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("A list of 100,000 keys", () => {
  layer(Service.layer, { excludeTestServices: true, timeout: 60_000 })((it) => {
    it.effect(
      "reads each page from an index, without a sort or a sequential scan, at the start and far into the list",
      () =>
        Effect.gen(function*() {
          const { database } = yield* Service
          yield* Effect.gen(function*() {
            const sql = yield* SqlClient.SqlClient
            const check = Effect.gen(function*() {
              for (
                const instant of [undefined, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.04Z", "2030-01-01T00:00:00Z"]
              ) {
                const after = instant === undefined
                  ? undefined
                  : { createdAtMicros: BigInt(Date.parse(instant)) * 1_000n, id: "key_8" }
                const [statement, parameters] = pageStatement(sql, { limit: 101, after }, DateTime.makeUnsafe(0))
                  .compile()
                const plan = JSON.stringify(yield* sql.unsafe(`EXPLAIN (ANALYZE, BUFFERS) ${statement}`, parameters))
                assert.include(plan, "Index Scan using api_keys_created")
                assert.notMatch(plan, /Sort|Seq Scan/)
                // The condition bounds the index scan, so that PostgreSQL reads no row only to filter it out.
                assert.notInclude(plan, "Filter")
                assert.isBelow(Number(/Buffers: shared hit=(\d+)/.exec(plan)?.[1] ?? 0), 300, plan)
              }
            })
            yield* check
            yield* sql`ANALYZE api_keys`
            yield* check
          }).pipe(Effect.provide(database))
        }),
      60_000
    )

    it.effect(
      "reads at most 10,000 keys for a page with a filter, from an index, and finds a rare key on a later page",
      () =>
        Effect.gen(function*() {
          const { database, management } = yield* Service
          yield* Effect.gen(function*() {
            const sql = yield* SqlClient.SqlClient
            const now = DateTime.makeUnsafe(0)
            // Autovacuum does this in a table that has grown.
            yield* sql`VACUUM ANALYZE api_keys`
            const [upTo] = yield* boundStatement(sql, undefined)
            assert.isDefined(upTo)
            for (
              const statement of [
                boundStatement(sql, upTo),
                pageStatement(sql, { limit: 21, search: "nowhere", upTo }, now),
                pageStatement(sql, { limit: 21, state: "revoked", after: upTo }, now)
              ]
            ) {
              const [text, parameters] = statement.compile()
              const plan = JSON.stringify(yield* sql.unsafe(`EXPLAIN (ANALYZE) ${text}`, parameters))
              assert.match(plan, /Index (Only )?Scan using api_keys_created/)
              assert.notMatch(plan, /Sort|Seq Scan/)
            }
          }).pipe(Effect.provide(database))

          const { list } = yield* AdminClient.pipe(
            Effect.provide(AdminClient.layer({ baseUrl: management, token: Redacted.make(ADMIN_TOKEN) }))
          )
          let page = yield* list({ search: `key ${keyCount}`, limit: 5 })
          for (let pageNumber = 1; pageNumber < keyCount / 10_000; pageNumber++) {
            assert.deepStrictEqual(page.keys, [])
            page = yield* list(page.next ?? {})
          }
          assert.deepStrictEqual(page.keys.map(({ name }) => name), [`key ${keyCount}`])
          assert.deepStrictEqual(yield* list(page.next ?? {}), { keys: [] })
        }),
      60_000
    )

    it.effect(
      "returns each key once and in order through AdminClient.all, and does not stall other requests",
      () =>
        Effect.gen(function*() {
          const { address, ids, key, management } = yield* Service
          const { latenciesMs, result: walked } = yield* Load.readDuring(
            { address, key, pauseMs: 5 },
            Stream.runCollect(Stream.unwrap(Effect.map(AdminClient, ({ all }) => all()))).pipe(
              Effect.provide(AdminClient.layer({ baseUrl: management, token: Redacted.make(ADMIN_TOKEN) }))
            )
          )
          assert.deepStrictEqual(walked.map(({ id }) => id), ids)
          assert.isAbove(latenciesMs.length, 20)
          latenciesMs.sort((a, b) => a - b)
          // A response with the whole list stalled other requests for 300 milliseconds.
          assert.isBelow(latenciesMs[Math.floor(latenciesMs.length * 0.95)] ?? Infinity, 150)
        }),
      120_000
    )

    it.effect(
      "is printed page by page by the petstore command, in a heap of 64 MB, and stops when its reader stops",
      () =>
        Effect.gen(function*() {
          const { ids, management } = yield* Service
          /** Runs the command, and stops reading after `maxChunks`. Times are milliseconds since its start. */
          const run = (maxChunks: number, ...args: ReadonlyArray<string>) =>
            Effect.promise(() =>
              new Promise<{
                readonly code: number | null
                readonly stdout: string
                readonly stderr: string
                readonly firstAt: number
                readonly endedAt: number
              }>((resolve) => {
                const child = spawn(process.execPath, [cli, "keys", "list", ...args], {
                  env: { PATH: process.env.PATH, PETSTORE_ADMIN_URL: management, ADMIN_TOKEN, NODE_OPTIONS }
                })
                const startedAt = performance.now()
                const chunks: Array<Buffer> = []
                let stderr = ""
                let firstAt = Infinity
                child.stderr.on("data", (chunk: Buffer) => stderr += chunk.toString())
                child.stdout.on("data", (chunk: Buffer) => {
                  firstAt = Math.min(firstAt, performance.now() - startedAt)
                  if (chunks.push(chunk) >= maxChunks) child.stdout.destroy()
                })
                child.on("close", (code) =>
                  resolve({
                    code,
                    stdout: Buffer.concat(chunks).toString(),
                    stderr,
                    firstAt,
                    endedAt: performance.now() - startedAt
                  }))
              })
            )
          const idsOf = (json: string) => JSON.parse(json).map(({ id }: { readonly id: string }) => id)
          const all = yield* run(Infinity, "--json")
          assert.deepStrictEqual(idsOf(all.stdout), ids)
          assert.isBelow(all.firstAt, all.endedAt / 2)
          const some = yield* run(Infinity, "--json", "--limit", "150")
          assert.deepStrictEqual(idsOf(some.stdout), ids.slice(0, 150))
          const { stdout } = yield* run(Infinity, "--limit", "250")
          assert.strictEqual(
            stdout.trimEnd().split("\n").map((line) => line.split("\t")[0]).join(),
            ids.slice(0, 250).join()
          )
          const stopped = yield* run(1)
          assert.include(stopped, { code: 0, stderr: "" })
          assert.isBelow(stopped.endedAt, all.endedAt / 2)
        }),
      300_000
    )
  })
})

const insertMillionKeys = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql`INSERT INTO api_keys (id, name, plan, per_minute, per_day, created_at, revoked_at)
    SELECT 'key_' || md5(n::text), 'key ' || n, 'free', 60, 1000, '2026-01-01T00:00:00Z'::timestamptz + n * interval '1 s',
      CASE WHEN n % 10 = 0 THEN '2026-06-01T00:00:00Z'::timestamptz END
    FROM generate_series(1, 1000000) n`
  yield* sql`VACUUM ANALYZE api_keys`
})

describe("A list of a million keys", () => {
  for (
    const { name, settings, skip } of [
      {
        name: "PGlite",
        skip: false,
        settings: Effect.map(dataDirectory, (directory) => ({
          env: { DATA_DIR: directory },
          database: Layer.fresh(EmbeddedDatabase.layer(directory))
        }))
      },
      {
        name: "PostgreSQL",
        skip: process.env.TEST_DATABASE_URL === undefined,
        settings: Effect.map(temporaryDatabaseUrl, (url) => ({ env: { DATABASE_URL: url }, database: client(url) }))
      }
    ]
  ) {
    it.live.skipIf(skip)(`delays no other request by 50 ms, on ${name}`, () =>
      Effect.gen(function*() {
        const { database, env } = yield* settings
        const key = yield* issueKey(database)
        yield* Effect.provide(insertMillionKeys, database)
        const { address, management } = yield* start({ ...env, ADMIN_TOKEN })

        const page = (query: string) =>
          Effect.promise(() =>
            fetch(`${management}/admin/keys?limit=20${query}`, { headers: { authorization: `Bearer ${ADMIN_TOKEN}` } })
              .then(async (response) => ({ status: response.status, text: await response.text() }))
          )

        /** Returns the longest latency of other requests while the page of a query is read. */
        const measureSlowestMs = Effect.fnUntraced(function*(query: string) {
          const { latenciesMs, result: { status, text } } = yield* Load.readDuring(
            { address, key, pauseMs: 1 },
            Effect.delay(page(query), "50 millis")
          )
          assert.strictEqual(status, 200, text)
          assert.isAtLeast(latenciesMs.length, 1)
          return Math.max(...latenciesMs)
        })
        const farMs = Date.parse("2026-01-01T00:00:00Z") + 900_000_000
        const farCursor = Buffer.from(`${farMs}000 key_`).toString("base64url")
        const queries = ["", "&search=nowhere", "&state=revoked", "&state=expired", "&plan=pro"]
        for (const query of [...queries, `&cursor=${farCursor}`, `&plan=pro&cursor=${farCursor}`]) {
          // A stall occurs each time, but other programs delay some of the requests.
          const slowestMs = yield* Effect.replicateEffect(measureSlowestMs(query), 8)
          assert.isBelow(Math.min(...slowestMs), 50, query)
        }
      }), 300_000)
  }
})
