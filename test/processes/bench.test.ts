import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import * as Contender from "../../bench/Contender.ts"
import { ratio } from "../../bench/measure.ts"
import * as Workload from "../../bench/Workload.ts"
import { run } from "../support/NpmPrograms.ts"
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

type Row = readonly [status: number, request: string, body?: object, isIdempotent?: true]

const pet = JSON.parse(Workload.newPet)
const after50 = `cursor=${Buffer.from("50").toString("base64url")}`

/** Requests, in order, with the status of every server's response. The idempotent ones have the same key. */
const rows: Readonly<Record<string, Row>> = {
  "a first page with a gap": [200, "GET /v1/pets"],
  "a page after a cursor": [200, `GET /v1/pets?limit=7&${after50}`],
  "a page of all pets": [200, "GET /v1/pets?limit=100"],
  "a limit over 100": [400, "GET /v1/pets?limit=101"],
  "a pet": [200, "GET /v1/pets/1"],
  "a pet in a gap": [404, "GET /v1/pets/7"],
  "a create": [201, "POST /v1/pets", pet],
  "an idempotent create": [201, "POST /v1/pets", pet, true],
  "its replay": [201, "POST /v1/pets", pet, true],
  "the same idempotency key with another pet": [422, "POST /v1/pets", { ...pet, name: "Max" }, true],
  "a create without a category": [400, "POST /v1/pets", { name: "Rex" }],
  "a create with an unknown status": [400, "POST /v1/pets", { ...pet, status: "lost" }]
}

/** Sends a request. Returns what all contenders have in common in the response, and in the line of the log. */
const exchange = Effect.fnUntraced(function*(server: Contender.Contender, key: string, row: Row, idempotencyKey = "") {
  const [{ address, latestOutput }, [, request, body, isIdempotent]] = [server, row]
  const [method = "", path = ""] = request.split(" ")
  const own = isIdempotent === undefined ? {} : { "idempotency-key": idempotencyKey }
  const { body: value, headers, status, text } = yield* send(address + path, key, method, body, own)
  const requestId = headers.get("x-request-id")
  const line = () => latestOutput().split("\n").find((each) => each.includes(`"requestId":"${requestId}"`)) ?? ""
  const fields = () => line().match(/"(?:message|method|route|status|keyId)":[^,}]*/g)?.toSorted()
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
    logged: Effect.map(until(() => line() !== ""), fields)
  }
})

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("The servers that the benchmark compares", () => {
  layer(Layer.effect(Petstore, startPetstore), { excludeTestServices: true })((it) => {
    for (const peer of Contender.peers) {
      it.effect(`${peer} sends the service's responses, counts both windows and logs requests`, (context) =>
        Effect.gen(function*() {
          const { databaseUrl, key, management, service } = yield* Petstore
          const other = yield* Contender.start(peer, { DATABASE_URL: databaseUrl }).pipe(
            Effect.catchTag("Unavailable", ({ message }) => Effect.sync((): never => context.skip(message)))
          )
          const compare = Effect.fnUntraced(function*(title: string, key: string, row: Row) {
            const { logged: expectedLine, ...expected } = yield* exchange(service, key, row, `like-${peer}`)
            const { logged, ...response } = yield* exchange(other, key, row, peer)
            assert.strictEqual(expected.status, row[0], title)
            assert.deepStrictEqual(response, expected, title)
            // The peers log a request that its key does not allow before they know the route.
            if (![401, 429].includes(row[0])) assert.deepStrictEqual(yield* logged, yield* expectedLine, title)
          })
          for (const [title, row] of Object.entries(rows)) yield* compare(title, key, row)
          yield* compare("an unknown key", "psk_unknown", [401, "GET /v1/pets/1"])
          for (const perDay of [1_000, 2]) {
            const options = { name: "a", plan: "enterprise", limits: { perMinute: 2, perDay } }
            const limited = yield* Workload.issueKey(management, options)
            for (const status of [200, 200, 429]) yield* compare(`${perDay} a day`, limited, [status, "GET /v1/pets/1"])
          }
        }))
    }

    for (const peer of Contender.peers) {
      it.effect(`${peer} caches pets and full pages for PET_CACHE_SECONDS, and nothing by default`, (context) =>
        Effect.gen(function*() {
          const { databaseUrl, key } = yield* Petstore
          const start = (env: object) =>
            Contender.start(peer, { DATABASE_URL: databaseUrl, ...env }).pipe(
              Effect.catchTag("Unavailable", ({ message }) => Effect.sync((): never => context.skip(message)))
            )
          const caching = yield* start({ PET_CACHE_SECONDS: "300" })
          const plain = yield* start({})
          const rename = (name: string) =>
            Workload.queryAt(databaseUrl)((sql) => sql`UPDATE pets SET name = ${name} WHERE id = 2`)
          for (const path of ["/v1/pets/2", "/v1/pets?limit=2"]) {
            const namesPet = ({ address }: Contender.Contender, name: string) =>
              Effect.map(send(address + path, key), ({ text }) => text.includes(`"${name}"`))
            yield* rename("before")
            assert.isTrue(yield* namesPet(caching, "before"))
            assert.isTrue(yield* namesPet(plain, "before"))
            yield* rename("after")
            assert.isTrue(yield* namesPet(caching, "before"), path)
            assert.isTrue(yield* namesPet(plain, "after"), path)
          }
          // The last page is not full, so each create changes it.
          const lastPage = send(`${caching.address}/v1/pets?limit=100&${after50}`, key)
          const count = Effect.map(lastPage, ({ body }): number => body.length)
          const before = yield* count
          yield* send(`${plain.address}/v1/pets`, key, "POST", pet)
          assert.strictEqual(yield* count, before + 1)
        }))
    }
  })

  it.live(
    "bench:compare prints CPU and counters of two trees, and starts all anew in each round",
    () =>
      Effect.gen(function*() {
        const load = { BENCH_ROUNDS: "2", BENCH_SECONDS: "0.1", BENCH_COUNTED: "20", BENCH_OPERATIONS: "list" }
        const env = { ...load, BENCH_PETS: "100", BENCH_KEYS: "1" }
        // Progress is on standard error.
        const command = `"$0" bench/compare.ts . 2>&1`
        const output = yield* run(Contender.repository, "sh", ["-c", command, process.execPath], env)
        const counters = String.raw`\d+\.\d \| \d+ \| \d+\.\d\d \| \d+\.\d\d \|`
        assert.match(output, new RegExp(String.raw`^\| list \| this tree \| \d+ \|  \| \d+, \d+ \| ${counters}$`, "m"))
        assert.match(output, new RegExp(String.raw`^\| list \| \. \| \d+ \| .+ \| \d+, \d+ \| ${counters}$`, "m"))
        assert.match(output, /^\| list \| control \| \d+ \| .+ \| \d+, \d+ \|(?:  \|){4}$/m)
        const rounds = output.match(/^Round .*/gm)?.join() ?? ""
        assert.strictEqual(new Set(rounds.match(/http:[^)]+/g)).size, 6, output)
        assert.strictEqual(output.match(/^ {2}list, .+ µs/gm)?.length, 6, output)
      }),
    180_000
  )
})

describe("A ratio of the benchmark", () => {
  const ratioOf = (...ours: ReadonlyArray<number>) =>
    ratio((name) => ours.map((cpu) => ({ cpu: name === "ours" ? cpu : 100, atRest: 0, highest: 0 })), "ours", "", "get")

  it("is called equal if its range over the rounds holds 1", () => {
    assert.deepStrictEqual(ratioOf(95, 106, 97), { side: "equal", text: "equal (0.95–1.06)" })
    assert.deepStrictEqual(ratioOf(80, 90, 99), { side: "below", text: "0.90 (0.80–0.99)" })
    assert.deepStrictEqual(ratioOf(101, 120, 110), { side: "above", text: "1.10 (1.01–1.20)" })
  })
})
