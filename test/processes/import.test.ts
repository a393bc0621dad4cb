/** Moves a service from the embedded database to PostgreSQL, as docs/database.md describes, after `KILLS` kills. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { randomInt } from "node:crypto"
import { once } from "node:events"
import { cli } from "../support/CommandRun.ts"
import { dataDirectory, queryIn, temporaryDatabaseUrl } from "../support/Databases.ts"
import * as Postgres from "../support/Postgres.ts"
import { issue, runProgram, send, start, stop } from "../support/Process.ts"

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
const kills = Number(process.env.KILLS ?? 1)

const title = "petstore import moves a million pets within two minutes, or none, and keys and cursors work on"
it.live.skipIf(process.env.TEST_DATABASE_URL === undefined)(title, () =>
  Effect.gen(function*() {
    const [DATA_DIR, DATABASE_URL] = [yield* dataDirectory, yield* temporaryDatabaseUrl]
    const env = { DATA_DIR, DATABASE_URL }
    const old = yield* start({ DATA_DIR })
    const { key } = yield* issue(old)
    assert.strictEqual(yield* stop(old, "SIGTERM"), 0)
    const insert = `INSERT INTO pets (name, category_id) SELECT 'pet ' || i, i FROM generate_series(1, ${pets}) AS i`
    yield* queryIn(DATA_DIR)((sql) => sql.unsafe(insert))

    const query = Postgres.queryOn(DATABASE_URL)
    const sessions = query((sql) => sql.unsafe(`SELECT FROM pg_stat_activity WHERE datname = current_database()`))
    for (let i = 0; i < kills; i++) {
      const progress = randomInt(pets * 0.9)
      const killed = yield* runImport(env, (output) => Number(/.*pets: copied (\d+)/s.exec(output)?.[1]) >= progress)
      assert.isNull(killed.code, killed.output)
      yield* Effect.repeat(sessions, { until: ({ length }) => length === 1 })
      assert.isEmpty(yield* query((sql) => sql`SELECT FROM pg_tables WHERE schemaname = 'public'`))
    }
    const startedAt = performance.now()
    const { code, output } = yield* runImport(env)
    assert.strictEqual(code, 0, output)
    assert.isBelow(performance.now() - startedAt, 120_000)
    assert.match(output, /^pets: copied 1000000 of 1000000, \d+ a second$[^]*^Imported 1000000 pets, /m)

    const service = yield* start(env)
    const page = yield* send(`${service.address}/v1/pets?limit=1&cursor=MQ`, key)
    assert.strictEqual(page.text, `[{"id":2,"name":"pet 2","categoryId":2}]`)
    const { body: next } = yield* send(`${service.address}/v1/pets`, key, "POST", { name: "next", categoryId: 1 })
    assert.isAbove(next.id, pets)
  }))
