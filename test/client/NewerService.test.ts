/** `test/package` repeats this with the packed client. */
import { assert, expectTypeOf, it } from "@effect/vitest"
import { Effect, Redacted, Stream } from "effect"
import { FetchHttpClient } from "effect/http"
import { HttpApiClient, HttpApiMiddleware } from "effect/http-api"
import { Auth, type NewPet, type Pet, type PetStatus, PetstoreApi } from "../../src/api/ApiExports.ts"
import { AdminClient, PetstoreClient } from "../../src/client/ClientExports.ts"
import { serve } from "../support/Process.ts"
import { newerService } from "./NewerService.ts"

it.live("the client and derived clients read a newer service: fields, statuses, codes, headers and cursors", () =>
  Effect.gen(function*() {
    const baseUrl = yield* serve(newerService)
    const petstore = yield* PetstoreClient.make({ baseUrl, apiKey: Redacted.make("psk"), retry: { times: 0 } })
    const rex = { id: 1n, name: "Rex", categoryId: 3n, status: "reserved" }
    const tom = { id: 2n, name: "Tom", categoryId: 3n, status: "sold" }
    assert.deepStrictEqual(yield* Stream.runCollect(petstore.all()), [rex, tom])
    assert.deepStrictEqual(yield* petstore.create({ name: "Rex", categoryId: 3n }), rex)
    const failures = [
      [404n, { _tag: "NotFound", status: 404, code: "not_found", unknownCode: "archived" }],
      [401n, { _tag: "InvalidApiKey", status: 401, unknownCode: "suspended_api_key" }],
      [429n, { _tag: "RateLimitExceeded", status: 429, unknownCode: "tenant_limit_exceeded" }],
      [451n, { _tag: "PetstoreClientError", reason: { _tag: "UndeclaredError", status: 451, code: "withheld" } }]
    ] as const
    for (const [id, expected] of failures) {
      assert.containsSubset(yield* Effect.flip(petstore.get(id)), { message: "Later.", ...expected })
    }
    const admin = yield* AdminClient.make({ baseUrl, token: Redacted.make("adm") })
    const { entries } = yield* admin.audit()
    assert.containsSubset(entries, [{ action: "transfer", after: { owner: "c" } }])
    const noAuth = HttpApiMiddleware.layerClient(Auth, ({ next, request }) => next(request))
    const derived = yield* Effect.provide(HttpApiClient.make(PetstoreApi, { baseUrl }), noAuth)
    const { next, pets } = yield* derived.listPets({ query: {} })
    assert.deepStrictEqual([...pets, ...(yield* derived.listPets({ query: next ?? {} })).pets], [rex, tom])
  }).pipe(Effect.provide(FetchHttpClient.layer)))

it("the status of a pet is open in responses, and strict in requests", () => {
  expectTypeOf<Required<Pet>["status"]>().toEqualTypeOf<PetStatus | (string & {})>()
  expectTypeOf<Required<NewPet>["status"]>().toEqualTypeOf<PetStatus>()
  expectTypeOf<PetStatus>().toEqualTypeOf<"available" | "pending" | "sold">()
})
