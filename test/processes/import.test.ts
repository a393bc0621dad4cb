/** Moves a service from the embedded database to PostgreSQL, as docs/database.md describes, with kills on the way. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { randomInt } from "node:crypto"
import { once } from "node:events"
import { fileURLToPath } from "node:url"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import { dataDirectory, temporaryDatabaseUrl } from "../support/Databases.ts"
import * as Postgres from "../support/Postgres.ts"
import { issue, runProgram, send, sendAdmin, start, stop } from "../support/Process.ts"

const cli = fileURLToPath(new URL("../../src/cli.ts", import.meta.url))

/** Runs `petstore import`. Sends SIGKILL once `kill` holds for its output. Returns its exit code and its output. */
const runImport = Effect.fnUntraced(function*(env: NodeJS.ProcessEnv, kill: (output: string) => boolean = () => false) {
  const child = yield* runProgram(process.execPath, [cli, "import"], { env: { PATH: process.env.PATH, ...env } })
  let output = ""
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on("data", (chunk: Buffer) => {
      output += chunk.toString()
      if (kill(output)) child.kill("SIGKILL")
    })
  }
  const [code]: ReadonlyArray<unknown> = yield* Effect.promise(() => once(child, "close"))
  return { code, output }
})

const pets = 1_000_000
const kills = Number(process.env.KILLS ?? 2)

const title = "petstore import moves a million pets within two minutes, or none, and keys, cursors and bans work on"
it.live.skipIf(process.env.TEST_DATABASE_URL === undefined)(title, () =>
  Effect.gen(function*() {
    const [DATA_DIR, DATABASE_URL] = [yield* dataDirectory, yield* temporaryDatabaseUrl]
    const env = { DATA_DIR, DATABASE_URL }
    const old = yield* start({ DATA_DIR })
    const { id, key: former } = yield* issue(old)
    const { key: bannedKey } = yield* issue(old, { name: "banned", plan: "free" })
    const { body: { key } } = yield* sendAdmin(old, "POST", `/keys/${id}/rotate`, { gracePeriodSeconds: 3_600 })
    const create = (address: string) =>
      send(`${address}/v1/pets`, key, "POST", { name: "first", categoryId: 1 }, { "idempotency-key": "before" })
    const first = yield* create(old.address)
    yield* Effect.replicateEffect(send(`${old.address}/v1/pets`, bannedKey), 120)
    assert.include((yield* runImport(env)).output, "Another process is using the data directory")
    assert.strictEqual(yield* stop(old, "SIGTERM"), 0)
    const onEmbedded = (...statements: ReadonlyArray<string>) =>
      Effect.flatMap(SqlClient.SqlClient, (sql) => Effect.forEach(statements, (text) => sql.unsafe(text))).pipe(
        Effect.provide(EmbeddedDatabase.layer(DATA_DIR)),
        Effect.scoped
      )
    yield* onEmbedded(
      `INSERT INTO pets (name, category_id) SELECT 'pet ' || i, i FROM generate_series(2, ${pets}) AS i`,
      // The ban outlasts the imports on a busy machine.
      `UPDATE rate_limits SET state = state || '{"ban":{"seconds":3600,"until":${Date.now() + 3_600_000}}}',
        ends_at = now() + interval '1 hour' WHERE state -> 'ban' IS NOT NULL`,
      `INSERT INTO petstore_migrations (migration_id, name) VALUES (99, 'later')`
    )
    assert.match((yield* runImport(env)).output, /^DATA_DIR: the embedded database has schema version 99, but /)
    yield* onEmbedded(`DELETE FROM petstore_migrations WHERE migration_id = 99`)

    const empty = yield* start(env)
    assert.include(empty.stderr(), `The database is empty, but DATA_DIR, \\"${DATA_DIR}\\", has an embedded database`)
    assert.strictEqual(yield* stop(empty, "SIGTERM"), 0)

    const query = Postgres.queryOn(DATABASE_URL)
    const sessions = query((sql) => sql.unsafe(`SELECT FROM pg_stat_activity WHERE datname = current_database()`))
    for (let i = 0; i < kills; i++) {
      const progress = randomInt(pets * 0.9)
      const killed = yield* runImport(env, (output) => Number(/.*pets: copied (\d+)/s.exec(output)?.[1]) >= progress)
      assert.isNull(killed.code, killed.output)
      yield* Effect.repeat(sessions, { until: ({ length }) => length === 1 })
      assert.isEmpty(yield* query((sql) => sql`SELECT FROM pets UNION ALL SELECT FROM api_keys LIMIT 1`))
    }
    const startedAt = performance.now()
    const { code, output } = yield* runImport(env)
    assert.strictEqual(code, 0, output)
    assert.isBelow(performance.now() - startedAt, 120_000)
    assert.match(output, /^pets: copied 1000000 of 1000000, \d+ a second$[^]*^Imported 1000000 pets, 1 idempotency/m)

    const service = yield* start(env)
    const page = yield* send(`${service.address}/v1/pets?limit=1&cursor=MQ`, key)
    assert.strictEqual(page.text, `[{"id":2,"name":"pet 2","categoryId":2}]`)
    assert.strictEqual((yield* send(`${service.address}/v1/pets`, former)).status, 200)
    const replayed = yield* create(service.address)
    assert.deepStrictEqual([replayed.text, replayed.headers.get("idempotent-replayed")], [first.text, "true"])
    const { body: next } = yield* send(`${service.address}/v1/pets`, key, "POST", { name: "next", categoryId: 1 })
    assert.isAbove(next.id, pets)
    assert.strictEqual((yield* send(`${service.address}/v1/pets`, bannedKey)).body.code, "api_key_banned")
  }))
