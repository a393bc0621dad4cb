/** Tests that the servers that the bench compares do the same work and send the same responses. */
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import * as Contender from "../../bench/Contender.ts"
import * as Workload from "../../bench/Workload.ts"
import { send, until } from "../support/Process.ts"
import { freePort } from "../support/Temporary.ts"

/** The service on a database of 95 pets with ids up to 100, and a key without limits. */
const startPetstore = Effect.gen(function*() {
  const { key, url } = yield* Workload.database(100)
  const port = String(yield* freePort)
  const service = yield* Contender.start("Petstore", { DATABASE_URL: url, MANAGEMENT_PORT: port })
  return { service, databaseUrl: url, management: `http://127.0.0.1:${port}`, key }
})

const Petstore = Context.Service<Effect.Success<typeof startPetstore>>("test/processes/Petstore")

interface Row {
  readonly status: number
  readonly request: string
  readonly body?: object
  /** The request has the idempotency key of its server, which is the same in all rows. */
  readonly isIdempotent?: true
}

const pet = JSON.parse(Workload.newPet)
const after50 = `cursor=${Buffer.from("50").toString("base64url")}`

/** Requests, in order, and the status of every server's response. */
const rows: Readonly<Record<string, Row>> = {
  "a first page with a gap": { status: 200, request: "GET /v1/pets" },
  "a page after a cursor": { status: 200, request: `GET /v1/pets?limit=7&${after50}` },
  "a page of all pets": { status: 200, request: "GET /v1/pets?limit=100" },
  "a limit over 100": { status: 400, request: "GET /v1/pets?limit=101" },
  "a pet": { status: 200, request: "GET /v1/pets/1" },
  "a pet in a gap": { status: 404, request: "GET /v1/pets/7" },
  "a create": { status: 201, request: "POST /v1/pets", body: pet },
  "an idempotent create": { status: 201, request: "POST /v1/pets", body: pet, isIdempotent: true },
  "its replay": { status: 201, request: "POST /v1/pets", body: pet, isIdempotent: true },
  "its key with another pet": {
    status: 422,
    request: "POST /v1/pets",
    body: { ...pet, name: "Max" },
    isIdempotent: true
  },
  "a create without a category": { status: 400, request: "POST /v1/pets", body: { name: "Rex" } },
  "a create with an unknown status": { status: 400, request: "POST /v1/pets", body: { ...pet, status: "lost" } }
}

const limitedKeys = {
  "by the minute": { perMinute: 2, perDay: 1_000 },
  "by the day": { perMinute: 2, perDay: 2 }
}

/** Sends a request. Returns what all contenders have in common in the response, and in the line of the log. */
const exchange = Effect.fnUntraced(function*(
  { address, latestOutput }: Contender.Contender,
  key: string,
  { body, isIdempotent, request }: Row,
  idempotencyKey = ""
) {
  const [method = "", path = ""] = request.split(" ")
  const own = isIdempotent === undefined ? {} : { "idempotency-key": idempotencyKey }
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
        `${peer} sends the service's responses, counts both windows and logs requests`,
        (context) =>
          Effect.gen(function*() {
            const { databaseUrl, key, management, service } = yield* Petstore
            const other = yield* Contender.start(peer, { DATABASE_URL: databaseUrl }).pipe(
              Effect.catchTag("Unavailable", ({ message }) => Effect.sync((): never => context.skip(message)))
            )
            const compare = Effect.fnUntraced(function*(title: string, key: string, row: Row) {
              const { logged: expectedLine, ...expected } = yield* exchange(service, key, row, `like-${peer}`)
              const { logged, ...response } = yield* exchange(other, key, row, peer)
              assert.strictEqual(expected.status, row.status, title)
              assert.deepStrictEqual(response, expected, title)
              // The peers log a request that its key does not allow before they know the route.
              if (![401, 429].includes(row.status)) assert.deepStrictEqual(yield* logged, yield* expectedLine, title)
            })
            for (const [title, row] of Object.entries(rows)) yield* compare(title, key, row)
            const request = "GET /v1/pets/1"
            yield* compare("an unknown key", "psk_unknown", { status: 401, request })
            for (const [title, limits] of Object.entries(limitedKeys)) {
              const limited = yield* Workload.issueKey(management, { name: "a", plan: "enterprise", limits })
              for (const status of [200, 200, 429]) yield* compare(title, limited, { status, request })
            }
          }),
        180_000
      )
    }

    it.effect("include the floor, which repeats responses of the service byte for byte", () =>
      Effect.gen(function*() {
        const { key, service } = yield* Petstore
        const floor = yield* Contender.start("node:http", { SERVICE: service.address, KEY: key })
        for (const request of ["GET /v1/pets", "GET /v1/pets/1"]) {
          const { logged: _, ...expected } = yield* exchange(service, key, { status: 200, request })
          const { logged: __, ...response } = yield* exchange(floor, key, { status: 200, request })
          assert.deepStrictEqual(response, expected)
        }
        assert.strictEqual((yield* send(`${floor.address}/v1/pets`, key, "POST", {})).status, 201)
      }))
  })
})
