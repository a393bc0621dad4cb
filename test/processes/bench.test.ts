/** Tests that the servers that the bench compares do the same work and send the same responses. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import * as Contender from "../../bench/Contender.ts"
import * as Workload from "../../bench/Workload.ts"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import { keysOn } from "../support/Harness.ts"

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("The contenders of the bench", () => {
  it.live(
    "send the same responses, commit each pet, count both windows and reject an unknown key",
    () =>
      Effect.gen(function*() {
        const { key, url } = yield* Workload.database(100)
        const env = { DATABASE_URL: url }
        const service = yield* Contender.start("Petstore", { env, key })
        const peers = yield* Effect.forEach(Contender.peers, (name) => Contender.start(name, { env, key }))
        const floors = yield* Effect.forEach(
          ["floor (node:http)", "floor, committing"] as const,
          (name) => Contender.start(name, { env: { ...env, SERVICE: service.address, KEY: key }, key })
        )
        const send = ({ address }: Contender.Contender, path: string, init: RequestInit = {}, bearer = key) =>
          Effect.promise(async () => {
            const response = await fetch(`${address}${path}`, {
              ...init,
              headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" }
            })
            const link = /<(.*)>/.exec(response.headers.get("link") ?? "")?.[1] ?? ""
            return {
              status: response.status,
              type: response.headers.get("content-type")?.replace(/; charset=utf-8$/i, ""),
              location: response.headers.get("location"),
              // Some servers repeat the limit in the link, so only the cursor is compared.
              next: new URL(link, address).searchParams.get("cursor"),
              body: await response.text()
            }
          })
        const create = { method: "POST", body: Workload.newPet }

        const cursor = Buffer.from("50").toString("base64url")
        for (const path of ["/v1/pets", "/v1/pets/1", `/v1/pets?limit=7&cursor=${cursor}`]) {
          const expected = yield* send(service, path)
          assert.strictEqual(expected.status, 200)
          // The floors serve only the first page.
          for (const other of path.includes("?") ? peers : [...peers, ...floors]) {
            assert.deepStrictEqual(yield* send(other, path), expected, `${other.name} ${path}`)
          }
        }

        for (const contender of [service, ...peers, ...floors]) {
          const { body, ...created } = yield* send(contender, "/v1/pets", create)
          const id = /"id":(\d+)/.exec(body)?.[1]
          assert.deepStrictEqual(
            created,
            { status: 201, type: "application/json", location: `/v1/pets/${id}`, next: null },
            contender.name
          )
          assert.strictEqual(body, Workload.newPet.replace("{", `{"id":${id},`), contender.name)
          assert.strictEqual((yield* send(service, `/v1/pets/${id}`)).body, body, contender.name)
        }

        const database = keysOn(PgClient.layer({ url: Redacted.make(url) }))
        for (const limits of [{ perMinute: 2, perDay: 1_000 }, { perMinute: 1_000, perDay: 2 }]) {
          const issued = yield* Effect.flatMap(ApiKeys, (keys) => keys.issue({ name: "a", plan: "enterprise", limits }))
            .pipe(Effect.provide(database))
          for (const contender of [service, ...peers]) {
            const get = send(contender, "/v1/pets/1", {}, Redacted.value(issued.key))
            const statuses = (yield* Effect.replicateEffect(get, 3)).map(({ status }) => status)
            assert.deepStrictEqual(statuses, [200, 200, 429], contender.name)
          }
        }
        for (const peer of peers) {
          assert.strictEqual((yield* send(peer, "/v1/pets/1", {}, "psk_unknown")).status, 401, peer.name)
        }
      }),
    120_000
  )
})
