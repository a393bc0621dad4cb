/**
 * Tests the running service against its OpenAPI document, with boundary and random requests.
 *
 * `CONFORMANCE_REQUESTS` sets the minimum number of requests, `CONFORMANCE_SEED` the seed of their random values.
 */
import { assert, it } from "@effect/vitest"
import { Ajv2020 } from "ajv/dist/2020.js"
import { Cause, Effect } from "effect"
import * as fc from "fast-check"
import { newestVersion } from "../../src/database/Database.ts"
import { runCommand } from "../support/CommandRun.ts"
import { dataDirectory } from "../support/Databases.ts"
import { codeBlocks, readPage } from "../support/Documents.ts"
import * as Postgres from "../support/Postgres.ts"
import { issue, metricsOf, type Running, send, start, stop, untilTrue } from "../support/Process.ts"
import type { ReceivedResponse } from "../support/Sockets.ts"
import { type Json, type Request, requestsOf } from "./Requests.ts"

const requests = Number(process.env.CONFORMANCE_REQUESTS ?? 1_500)
const seed = Number(process.env.CONFORMANCE_SEED ?? Math.trunc(Math.random() * 2 ** 31))

/** Returns a function that throws if a response does not conform to `document`, which has `responses` by operation. */
const checksOf = (document: Json, responses: Json) => {
  const ajv = new Ajv2020({ strict: false, validateFormats: false })
  ajv.addSchema({ $id: "https://petstore/", ...document })
  const assertConforms = (schema: Json, value: unknown): void => {
    const validate = schema.$ref ? ajv.getSchema(`https://petstore/${schema.$ref}`) : ajv.compile(schema)
    assert.isTrue(validate?.(value), ajv.errorsText(validate?.errors))
  }

  return ({ headers: sent, operationId, wrong }: Request, { headers, status, text }: ReceivedResponse): void => {
    const response: Json | undefined = responses[operationId][status]
    assert.isDefined(response, `status ${status} is documented`)
    // A random id can have no pet (404), and a random Idempotency-Key can repeat with another pet (422).
    assert.match(String(status), wrong !== undefined ? /400/ : sent["Idempotency-Key"] ? /2..|404|422/ : /2..|404/)

    if (response?.content === undefined) return assert.strictEqual(text, "")
    const [[type, content]] = Object.entries<Json>(response.content) as [[string, Json]]
    assert.strictEqual(headers.get("content-type"), type)
    const body = JSON.parse(text)
    assertConforms(content.schema, body)
    if (status >= 400) {
      assert.deepStrictEqual(Object.keys(body), ["code", "message", "status"])
      assert.strictEqual(body.status, status)
      assert.include(Object.keys(content.examples), body.code)
    }

    for (const [name, declared] of Object.entries<Json>(response?.headers)) {
      // Responses share headers by reference.
      const header = declared.$ref ? document.components.headers[declared.$ref.split("/").at(-1)] : declared
      const value = headers.get(name)
      if (value === null) assert.isFalse(header.required, `${name} is present`)
      else assertConforms(header.schema, header.schema.type === "integer" ? Number(value) : value)
    }
  }
}

const assertConformance = Effect.fnUntraced(function*(service: Running) {
  const { key } = yield* issue(service)
  const { body: document } = yield* send(`${service.address}/openapi.json`, "")
  const { boundaries, invalid, responses, valid } = requestsOf(document)
  const assertConforms = checksOf(document, responses)
  const check = async (request: Request): Promise<number> => {
    const { body = null, method, target } = request
    const headers = { ...request.headers, authorization: `Bearer ${key}` }
    const response = await fetch(service.address + target, { method, headers, body })
    const received = { status: response.status, headers: response.headers, text: await response.text() }
    try {
      assertConforms(request, received)
    } catch (cause) {
      const details = JSON.stringify({ request, ...received, CONFORMANCE_SEED: seed })
      throw new Error(`${String(cause)}\n${details}`, { cause })
    }
    return response.status
  }
  yield* Effect.promise(async () => {
    assert.isAbove(boundaries.length, 40)
    assert.sameMembers([...new Set(boundaries.map(({ operationId }) => operationId))], Object.keys(responses))
    for (const request of boundaries) await check(request)

    const batches = fc.array(fc.oneof(valid, invalid), { minLength: 10, maxLength: 10 })
    const random = fc.asyncProperty(batches, async (batch) => {
      await Promise.all(batch.map(check))
    })
    await fc.assert(random, { seed, numRuns: Math.ceil((requests - boundaries.length) / 10) })

    // Examples: a page that has a next one, and a pet, which random requests do not find.
    const get = { method: "GET", headers: {}, body: undefined, wrong: undefined }
    await check({ ...get, operationId: "listPets", target: "/v1/pets?limit=1" })
    assert.strictEqual(await check({ ...get, operationId: "getPet", target: "/v1/pets/1" }), 200)
  })
})

/** A service with the role of docs/database.md that can only read and write rows. */
const startWithRowsRole = Effect.gen(function*() {
  const server = yield* Postgres.run()
  const urlOf = (role: string) =>
    server.url.replace(/\/\/[^@/]*@/, `//${role}@`).replace(/\/[^/?]*(\?|$)/, "/petstore$1")
  const run = (url: string, text: string) =>
    Postgres.queryOn(url)((sql) =>
      Effect.forEach(text.split(";").filter((each) => each.trim() !== ""), (statement) => sql.unsafe(statement))
    )
  const statements = codeBlocks(readPage("docs/database.md")).flatMap(({ code, language }) =>
    language === "sql" ? [code] : []
  )
  const [owner = "", role = "", grants = ""] = statements
  yield* run(server.url, owner)
  yield* run(server.url, role)
  const settings = { DATABASE_URL: urlOf("petstore_rows"), MIGRATE: "off" }
  const { code, stderr } = yield* Effect.flip(start(settings))
  assert.strictEqual(code, 1)
  assert.match(
    stderr,
    /The database has schema version 0, but this service needs version \d+, and MIGRATE is off\. Run, /
  )
  const migrated = yield* runCommand({ DATABASE_URL: urlOf("petstore") }, ["migrate"])
  assert.deepStrictEqual([migrated.code, migrated.stdout], [0, `The database has schema version ${newestVersion}.\n`])
  assert.match(migrated.stderr, /^Migrating the database: 0001_baseline$/m)
  yield* run(urlOf("petstore"), grants)
  const service = yield* start(settings)
  const failure = yield* Effect.flip(run(settings.DATABASE_URL, "CREATE TABLE own (id int)"))
  assert.include(String(Cause.squash(Cause.fail(failure))), "SqlError")
  return service
})

it.live.skipIf(!Postgres.isInstalled)(
  "MIGRATE=off starts on the newest schema alone, and a role that can only read and write rows serves the contract",
  () =>
    Effect.gen(function*() {
      const service = yield* startWithRowsRole
      yield* assertConformance(service)
      // The tasks in the background write with the same role.
      yield* untilTrue(Effect.map(metricsOf(service), (text) => /write_duration_seconds_count\S* [1-9]/.test(text)))
      assert.match(yield* metricsOf(service), /background_failures_total\{/)
      assert.notMatch(yield* metricsOf(service), /background_failures_total\{[^}]*\} [1-9]/)
      assert.strictEqual(yield* stop(service, "SIGTERM"), 0)
      assert.notMatch(service.stderr(), /permission denied|"level":"(?:ERROR|FATAL)"/)
    })
)

it.live(`The service conforms to its OpenAPI document in ${requests} requests`, () =>
  Effect.gen(function*() {
    yield* assertConformance(yield* start({ DATA_DIR: yield* dataDirectory }))
  }), 900_000)
