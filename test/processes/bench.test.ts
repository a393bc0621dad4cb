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

class Petstore extends Context.Service<Petstore, Effect.Success<typeof startPetstore>>()("test/processes/Petstore") {
  static readonly layer = Layer.effect(Petstore, startPetstore)
}

/** Returns the response that each server sends to a read, and the fields of its log line. */
const read = Effect.fnUntraced(function*({ address, latestOutput }: Contender.Contender, key: string, path: string) {
  const { headers, status, text } = yield* send(address + path, key)
  const requestId = headers.get("x-request-id")
  const line = () => latestOutput().split("\n").find((each) => each.includes(`"requestId":"${requestId}"`))
  return {
    response: {
      status,
      text,
      type: headers.get("content-type")?.replace(/; ?charset=utf-8$/i, ""),
      // The service repeats fewer parameters in the link, so only the cursor is compared.
      next: new URL(/<(.*)>/.exec(headers.get("link") ?? "")?.[1] ?? "", address).searchParams.get("cursor"),
      limit: headers.get("x-ratelimit-limit")
    },
    logged: Effect.map(
      until(() => line() !== undefined),
      () =>
        ["message", "method", "route", "status", "keyId"].map((name) =>
          new RegExp(`"${name}":("[^"]*"|\\d+)`).exec(line() ?? "")?.[1]
        )
    )
  }
})

const paths = ["/v1/pets", "/v1/pets/1", `/v1/pets?limit=7&cursor=${Buffer.from("50").toString("base64url")}`]

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("The contenders of the bench", () => {
  layer(Petstore.layer, { excludeTestServices: true })((it) => {
    for (const peer of Contender.peers) {
      it.effect(
        `${peer} sends the responses of the service, commits pets, counts both windows and logs requests`,
        (context) =>
          Effect.gen(function*() {
            const { databaseUrl, key, management, service } = yield* Petstore
            const other = yield* Contender.start(peer, { DATABASE_URL: databaseUrl }).pipe(
              Effect.catchTag("Unavailable", ({ message }) => Effect.sync((): never => context.skip(message)))
            )
            for (const path of [...paths, "/v1/pets?limit=100"]) {
              const expected = yield* read(service, key, path)
              const found = yield* read(other, key, path)
              assert.deepStrictEqual(found.response, expected.response, path)
              assert.deepStrictEqual(yield* found.logged, yield* expected.logged)
            }

            const pets = `${other.address}/v1/pets`
            const pet = JSON.parse(Workload.newPet)
            const once = { "idempotency-key": `key of ${peer}` }
            for (const headers of [{}, once]) {
              const created = yield* send(pets, key, "POST", pet, headers)
              const location = `/v1/pets/${created.body.id}`
              assert.deepStrictEqual([created.status, created.headers.get("location")], [201, location])
              assert.deepStrictEqual(created.body, { id: created.body.id, ...pet })
              assert.strictEqual((yield* send(service.address + location, key)).text, created.text)
              if (headers !== once) continue
              const replayed = yield* send(pets, key, "POST", pet, once)
              assert.deepStrictEqual([replayed.status, replayed.text], [201, created.text])
              assert.strictEqual(replayed.headers.get("idempotent-replayed"), "true")
            }
            const rejections = [
              [send(pets, key, "POST", { ...pet, name: "Max" }, once), 422, "idempotency_key_reused"],
              [send(pets, key, "POST", { name: "Rex" }), 400, "invalid_request"],
              [send(pets, key, "POST", { ...pet, status: "lost" }), 400, "invalid_request"],
              [send(`${pets}?limit=101`, key), 400, "invalid_request"],
              [send(`${pets}/999999999`, key), 404, "not_found"],
              [send(`${pets}/1`, "psk_unknown"), 401, "invalid_api_key"]
            ] as const
            for (const [request, status, code] of rejections) {
              const response = yield* request
              assert.deepStrictEqual([response.status, response.body.code], [status, code])
            }

            for (const limits of [{ perMinute: 2, perDay: 1_000 }, { perMinute: 1_000, perDay: 2 }]) {
              const limited = yield* Workload.issueKey(management, { name: "a", plan: "enterprise", limits })
              const responses = yield* Effect.replicateEffect(send(`${pets}/1`, limited), 3)
              assert.deepStrictEqual(
                responses.map((
                  { headers, status }
                ) => [status, headers.get("x-ratelimit-limit"), headers.has("retry-after")]),
                [[200, "2", false], [200, "2", false], [429, "2", true]]
              )
            }
          }),
        // The Go server is compiled first.
        180_000
      )
    }

    it.effect("the floor repeats responses of the service byte for byte", () =>
      Effect.gen(function*() {
        const { key, service } = yield* Petstore
        const floor = yield* Contender.start("node:http", { SERVICE: service.address, KEY: key })
        for (const path of paths.slice(0, 2)) {
          assert.deepStrictEqual((yield* read(floor, key, path)).response, (yield* read(service, key, path)).response)
        }
        assert.strictEqual((yield* send(`${floor.address}/v1/pets`, key, "POST", {})).status, 201)
      }))
  })
})
