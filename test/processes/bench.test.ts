/** Tests that the servers that the bench compares do the same work and send the same responses. */
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import * as Contender from "../../bench/Contender.ts"
import * as Workload from "../../bench/Workload.ts"
import { freePort } from "../support/Harness.ts"
import { send, until } from "../support/Process.ts"

/** The service on a database of 100 pets, and a key without limits. */
const startPetstore = Effect.gen(function*() {
  const { key, url } = yield* Workload.database(100)
  const port = String(yield* freePort)
  const service = yield* Contender.start("Petstore", { DATABASE_URL: url, MANAGEMENT_PORT: port })
  return { service, databaseUrl: url, management: `http://127.0.0.1:${port}`, key }
})

const Petstore = Context.Service<Effect.Success<typeof startPetstore>>("test/processes/Petstore")

const reads = ["/v1/pets", "/v1/pets/1"].map((path) => ["GET", path] as const)
const pet = JSON.parse(Workload.newPet)

/** Requests, in order, that the service and each peer must treat alike. `once` is sent with an idempotency key. */
const requests: ReadonlyArray<readonly [method: string, path: string, body?: object, once?: "once"]> = [
  ...reads,
  ["GET", `/v1/pets?limit=7&cursor=${Buffer.from("50").toString("base64url")}`],
  ["GET", "/v1/pets?limit=100"],
  ["GET", "/v1/pets?limit=101"],
  ["GET", "/v1/pets/999999999"],
  ["POST", "/v1/pets", pet],
  ["POST", "/v1/pets", pet, "once"],
  ["POST", "/v1/pets", pet, "once"],
  ["POST", "/v1/pets", { ...pet, name: "Max" }, "once"],
  ["POST", "/v1/pets", { name: "Rex" }],
  ["POST", "/v1/pets", { ...pet, status: "lost" }]
]

/** Sends a request. Returns what all contenders have in common in the response, and in the line of the log. */
const exchange = Effect.fnUntraced(function*(
  { address, latestOutput }: Contender.Contender,
  key: string,
  [method, path, body, once]: typeof requests[number],
  idempotencyKey = ""
) {
  const own = once === undefined ? {} : { "idempotency-key": idempotencyKey }
  const { body: value, headers, status, text } = yield* send(address + path, key, method, body, own)
  const requestId = headers.get("x-request-id")
  const line = () => latestOutput().split("\n").find((each) => each.includes(`"requestId":"${requestId}"`)) ?? ""
  return {
    status,
    // Each server has its own messages, and each create its own id.
    text: status < 400 ? text.replace(method === "POST" ? /"id":\d+,/ : "", "") : value.code,
    type: headers.get("content-type")?.replace(/; ?charset=utf-8$/i, ""),
    hasLocation: headers.get("location") === `/v1/pets/${value.id}`,
    isReplay: headers.get("idempotent-replayed"),
    // The service repeats fewer parameters in the link, so only the cursor is compared.
    next: new URL(/<(.*)>/.exec(headers.get("link") ?? "")?.[1] ?? "", address).searchParams.get("cursor"),
    // The peers do not limit addresses.
    limit: status === 401 ? undefined : headers.get("x-ratelimit-limit"),
    hasRetryAfter: headers.has("retry-after"),
    logged: Effect.map(
      until(() => line() !== ""),
      () => line().match(/"(?:message|method|route|status|keyId)":[^,}]*/g)?.toSorted()
    )
  }
})

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("The contenders of the bench", () => {
  layer(Layer.effect(Petstore, startPetstore), { excludeTestServices: true })((it) => {
    for (const peer of Contender.peers) {
      it.effect(
        `${peer} sends the responses of the service, counts both windows and logs requests`,
        (context) =>
          Effect.gen(function*() {
            const { databaseUrl, key, management, service } = yield* Petstore
            const other = yield* Contender.start(peer, { DATABASE_URL: databaseUrl }).pipe(
              Effect.catchTag("Unavailable", ({ message }) => Effect.sync((): never => context.skip(message)))
            )
            const compare = Effect.fnUntraced(function*(key: string, request: typeof requests[number]) {
              const id = other.address
              const { logged: expectedLine, ...expected } = yield* exchange(service, key, request, `like-${id}`)
              const { logged, ...response } = yield* exchange(other, key, request, id)
              assert.deepStrictEqual(response, expected, request[1])
              // The Go peer logs a request that its key does not allow before it knows the route.
              if (![401, 429].includes(response.status)) assert.deepStrictEqual(yield* logged, yield* expectedLine)
              return response.status
            })
            for (const request of requests) yield* compare(key, request)
            assert.strictEqual(yield* compare("psk_unknown", ["GET", "/v1/pets/1"]), 401)
            for (const limits of [{ perMinute: 2, perDay: 1_000 }, { perMinute: 1_000, perDay: 2 }]) {
              const limited = yield* Workload.issueKey(management, { name: "a", plan: "enterprise", limits })
              const statuses = yield* Effect.replicateEffect(compare(limited, ["GET", "/v1/pets/1"]), 3)
              assert.deepStrictEqual(statuses, [200, 200, 429])
            }
          }),
        180_000
      )
    }

    it.effect("the floor repeats responses of the service byte for byte", () =>
      Effect.gen(function*() {
        const { key, service } = yield* Petstore
        const floor = yield* Contender.start("node:http", { SERVICE: service.address, KEY: key })
        for (const request of reads) {
          const { logged: _, ...expected } = yield* exchange(service, key, request)
          const { logged: __, ...response } = yield* exchange(floor, key, request)
          assert.deepStrictEqual(response, expected)
        }
        assert.strictEqual((yield* send(`${floor.address}/v1/pets`, key, "POST", {})).status, 201)
      }))
  })
})
