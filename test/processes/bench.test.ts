/** Tests that the servers that the bench compares do the same work and send the same responses. */
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import * as Contender from "../../bench/Contender.ts"
import * as Workload from "../../bench/Workload.ts"
import { freePort } from "../support/Harness.ts"
import { until } from "../support/Process.ts"

/** The service on a database of 100 pets, and a key without limits. */
class Petstore extends Context.Service<Petstore, {
  readonly contender: Contender.Contender
  readonly databaseUrl: string
  readonly management: string
  readonly key: string
}>()("test/processes/bench/Petstore") {
  static readonly layer = Layer.effect(
    Petstore,
    Effect.gen(function*() {
      const { key, url } = yield* Workload.database(100)
      const port = String(yield* freePort)
      const contender = yield* Contender.start("Petstore", { DATABASE_URL: url, MANAGEMENT_PORT: port })
      return { contender, databaseUrl: url, management: `http://127.0.0.1:${port}`, key }
    })
  )
}

const send = (
  { address }: Contender.Contender,
  key: string,
  path: string,
  { headers, ...init }: RequestInit & { readonly headers?: Readonly<Record<string, string>> } = {}
) =>
  Effect.promise(async () => {
    const authorization = { "authorization": `Bearer ${key}`, "content-type": "application/json" }
    const response = await fetch(`${address}${path}`, { ...init, headers: { ...authorization, ...headers } })
    const header = (name: string) => response.headers.get(name)
    return {
      status: response.status,
      body: await response.text(),
      type: header("content-type")?.replace(/; ?charset=utf-8$/i, ""),
      location: header("location"),
      // The service repeats fewer parameters in the link, so only the cursor is compared.
      next: new URL(/<(.*)>/.exec(header("link") ?? "")?.[1] ?? "", address).searchParams.get("cursor"),
      isReplay: header("idempotent-replayed"),
      limit: header("x-ratelimit-limit"),
      retryAfter: header("retry-after") !== null,
      requestId: header("x-request-id")
    }
  })

/** Waits for the log line of a request, and returns the fields that each server logs. */
const logLine = Effect.fnUntraced(function*({ latestOutput }: Contender.Contender, requestId: string | null) {
  const line = () => latestOutput().split("\n").find((text) => text.includes(`"requestId":"${requestId}"`))
  yield* until(() => line() !== undefined)
  const text = line() ?? ""
  return ["message", "method", "route", "status", "keyId"].map((name) =>
    new RegExp(`"${name}":("[^"]*"|\\d+)`).exec(text)?.[1]
  )
})

/** Returns the code and status of an error, because each server has its own messages. */
const errorOf = ({ body, status }: { readonly body: string; readonly status: number }) => [
  status,
  /"code":"(\w+)"/.exec(body)?.[1]
]

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("The contenders of the bench", () => {
  layer(Petstore.layer, { excludeTestServices: true, timeout: 60_000 })((it) => {
    for (const peer of Contender.peers) {
      it.effect(
        `${peer} sends the responses of the service, commits pets, counts both windows and logs requests`,
        (context) =>
          Effect.gen(function*() {
            const { contender: service, databaseUrl, key, management } = yield* Petstore
            const other = yield* Contender.start(peer, { DATABASE_URL: databaseUrl }).pipe(
              Effect.catchTag("Unavailable", ({ message }) => Effect.sync((): never => context.skip(message)))
            )
            const cursor = Buffer.from("50").toString("base64url")
            for (const path of ["/v1/pets", "/v1/pets/1", `/v1/pets?limit=7&cursor=${cursor}`, "/v1/pets?limit=100"]) {
              const { requestId: expectedId, ...expected } = yield* send(service, key, path)
              const { requestId, ...response } = yield* send(other, key, path)
              assert.deepStrictEqual(response, expected, path)
              assert.deepStrictEqual(yield* logLine(other, requestId), yield* logLine(service, expectedId))
            }

            const post = (body: string, headers = {}) => send(other, key, "/v1/pets", { method: "POST", body, headers })
            const once = { "idempotency-key": `key of ${peer}` }
            for (const headers of [{}, once]) {
              const created = yield* post(Workload.newPet, headers)
              assert.strictEqual(created.status, 201)
              const id = /"id":(\d+)/.exec(created.body)?.[1]
              assert.strictEqual(created.location, `/v1/pets/${id}`)
              assert.strictEqual(created.body, Workload.newPet.replace("{", `{"id":${id},`))
              assert.strictEqual((yield* send(service, key, `/v1/pets/${id}`)).body, created.body)
              if (headers !== once) continue
              const replayed = yield* post(Workload.newPet, once)
              assert.deepStrictEqual([replayed.status, replayed.body, replayed.isReplay], [201, created.body, "true"])
            }
            const rejections = [
              [yield* post(Workload.newPet.replace("Rex", "Max"), once), [422, "idempotency_key_reused"]],
              [yield* post(`{"name":"Rex"}`), [400, "invalid_request"]],
              [yield* post(`{"name":"Rex","categoryId":1,"status":"lost"}`), [400, "invalid_request"]],
              [yield* send(other, key, "/v1/pets?limit=101"), [400, "invalid_request"]],
              [yield* send(other, key, "/v1/pets/999999999"), [404, "not_found"]],
              [yield* send(other, "psk_unknown", "/v1/pets/1"), [401, "invalid_api_key"]]
            ] as const
            for (const [response, expected] of rejections) assert.deepStrictEqual(errorOf(response), [...expected])

            for (const limits of [{ perMinute: 2, perDay: 1_000 }, { perMinute: 1_000, perDay: 2 }]) {
              const limited = yield* Workload.issueKey(management, { name: "a", plan: "enterprise", limits })
              const responses = yield* Effect.replicateEffect(send(other, limited, "/v1/pets/1"), 3)
              assert.deepStrictEqual(responses.map(({ status }) => status), [200, 200, 429])
              assert.deepStrictEqual(responses.map(({ limit }) => limit), ["2", "2", "2"])
              assert.deepStrictEqual(responses.map(({ retryAfter }) => retryAfter), [false, false, true])
            }
          }),
        // The Go server is compiled first.
        180_000
      )
    }

    it.effect("the floor repeats responses of the service byte for byte", () =>
      Effect.gen(function*() {
        const { contender: service, key } = yield* Petstore
        const floor = yield* Contender.start("node:http", { SERVICE: service.address, KEY: key })
        for (const path of ["/v1/pets", "/v1/pets/1"]) {
          const { requestId: _, ...expected } = yield* send(service, key, path)
          const { requestId: __, ...response } = yield* send(floor, key, path)
          assert.deepStrictEqual(response, expected)
        }
        assert.strictEqual((yield* send(floor, key, "/v1/pets", { method: "POST", body: Workload.newPet })).status, 201)
      }))
  })
})
