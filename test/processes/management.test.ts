/** Tests the management port of a process, and revocation in another process. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import { dataDirectory, temporaryDatabaseUrl, temporaryDirectory } from "../support/Harness.ts"
import { start } from "../support/Process.ts"

const ADMIN_TOKEN = "adm_test"

const send = (url: string, token: string, options: RequestInit = {}) =>
  Effect.promise(async () => {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" }
    const response = await fetch(url, { ...options, headers })
    const text = await response.text()
    return { status: response.status, text, body: text.startsWith("{") ? JSON.parse(text) : undefined }
  })

describe("The management port", () => {
  it.live(
    "requires its token, serves no path of the API port, and counts requests by route and status",
    () =>
      Effect.gen(function*() {
        const DATA_DIR = yield* dataDirectory
        const { address, management } = yield* start({ DATA_DIR, BUILD_REVISION: "79d1fb3" })
        const file = join(DATA_DIR, "admin-token")
        assert.strictEqual(statSync(file).mode & 0o777, 0o600)
        const token = readFileSync(file, "utf8").trim()
        assert.match(management, /^http:\/\/127\.0\.0\.1:/)
        assert.strictEqual((yield* send(`${management}/admin/keys`, token)).status, 200)
        for (const path of ["/admin/keys", "/healthz", "/readyz", "/metrics"]) {
          assert.strictEqual((yield* send(address + path, token)).body.code, "not_found")
        }
        assert.strictEqual((yield* send(`${management}/v1/pets`, token)).body.code, "not_found")
        assert.include((yield* send(`${management}/healthz`, "")).body, { revision: "79d1fb3" })
        assert.strictEqual((yield* send(`${management}/readyz`, "")).body.status, "ready")
        assert.strictEqual((yield* send(`${management}/admin/keys`, "")).body.code, "missing_admin_token")
        assert.strictEqual((yield* send(`${management}/admin/keys`, "adm_x")).body.code, "invalid_admin_token")

        for (let i = 0; i < 3; i++) yield* send(`${address}/v1/pets/${i}`, "none")
        const { text } = yield* send(`${management}/metrics`, "")
        assert.include(
          text,
          `petstore_http_server_request_duration_seconds_count{http_request_method="GET",http_route="/v1/pets/:petId",http_response_status_code="401"} 3`
        )
      }),
    60_000
  )
})

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("Two processes on one PostgreSQL", () => {
  it.live(
    "reject a key within a second after the other revoked it, under load, and fail no other request",
    () =>
      Effect.gen(function*() {
        const env = { DATABASE_URL: yield* temporaryDatabaseUrl, DATA_DIR: yield* temporaryDirectory, ADMIN_TOKEN }
        const [one, two] = yield* Effect.all([start(env), start(env)])
        const limits = { perMinute: 1_000_000, perDay: 1_000_000 }
        const body = JSON.stringify({ name: "a", plan: "enterprise", limits })
        const issue = send(`${one.management}/admin/keys`, ADMIN_TOKEN, { method: "POST", body })
        const { body: valid } = yield* issue

        const statuses = new Set<number>()
        const load = send(`${two.address}/v1/pets`, valid.key).pipe(
          Effect.map(({ status }) => statuses.add(status)),
          Effect.forever
        )
        const revocations = Effect.gen(function*() {
          for (let round = 0; round < 2; round++) {
            const { body: revoked } = yield* issue
            assert.strictEqual((yield* send(`${two.address}/v1/pets`, revoked.key)).status, 200)
            yield* send(`${one.management}/admin/keys/${revoked.id}`, ADMIN_TOKEN, { method: "DELETE" })
            const revokedAt = performance.now()
            let status = 200
            while (status === 200) {
              const askedAt = performance.now()
              status = (yield* send(`${two.address}/v1/pets`, revoked.key)).status
              if (status === 200) assert.isBelow(askedAt - revokedAt, 1000)
            }
            assert.strictEqual(status, 401)
          }
        })
        yield* Effect.raceFirst(
          revocations,
          Effect.all(Array.from({ length: 8 }, () => load), { concurrency: "unbounded" })
        )
        assert.deepStrictEqual([...statuses], [200])
      }),
    120_000
  )
})
