/** A deprecated operation beside a current one on one path, each in a group of its own. */
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { HttpApiBuilder, HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { commonErrors } from "../../src/api/ErrorSchemas.ts"
import { inOrder } from "../../src/api/InOrder.ts"
import { int64 } from "../../src/api/Int64.ts"
import { deprecate, operationSteps, Sunset } from "../../src/api/OperationMiddleware.ts"
import { makeApi } from "../../src/api/PetstoreApi.ts"
import type { RouteServices } from "../../src/http/ApiRoutes.ts"
import * as ApiServer from "../../src/http/ApiServer.ts"
import type { PetRepository } from "../../src/pets/PetRepository.ts"
import { memory } from "../support/Databases.ts"
import { Service, service } from "../support/Service.ts"

const path = "/things/:id"
const options = {
  params: { id: int64("Identifier.", 1) },
  success: HttpApiSchema.NoContent,
  error: [...commonErrors]
} as const
const since = deprecate(new Date("2026-01-01"), new Date("2030-01-01"), "/v1/things", "/docs")
const api = makeApi(
  HttpApiGroup.make("reads", { topLevel: true }).add(
    HttpApiEndpoint.get("getThing", path, options).pipe(inOrder(...operationSteps))
  ),
  HttpApiGroup.make("changes", { topLevel: true }).add(
    HttpApiEndpoint.patch("changeThing", path, options).pipe(inOrder(...operationSteps, Sunset)).annotateMerge(since)
  )
)
const routes: Layer.Layer<never, never, RouteServices | PetRepository> = Layer.provide(HttpApiBuilder.layer(api), [
  HttpApiBuilder.group(api, "reads", (handlers) => handlers.handle("getThing", () => Effect.void)),
  HttpApiBuilder.group(api, "changes", (handlers) => handlers.handle("changeThing", () => Effect.void))
])

layer(service(memory, {}, { port: ApiServer.layer(api, routes) }))("A deprecated PATCH beside a current GET", (it) => {
  it.effect("is announced in its own responses and in its part of the document, and not in those of the GET", () =>
    Effect.gen(function*() {
      const { call, newKey } = yield* Service
      const key = yield* newKey
      const announced = { deprecation: "@1767225600", sunset: "Tue, 01 Jan 2030 00:00:00 GMT" }
      const expected = [
        ["GET", { key }, 204, {}],
        ["PATCH", { key }, 204, announced],
        ["PATCH", {}, 401, announced],
        ["PUT", { key }, 405, {}],
        ["OPTIONS", {}, 204, {}]
      ] as const
      for (const [method, credentials, status, headers] of expected) {
        const response = yield* call("/v1/things/1", { method, ...credentials })
        const { deprecation, sunset }: Readonly<Record<string, string>> = Object.fromEntries(response.headers)
        assert.deepStrictEqual(
          { status: response.status, ...deprecation && { deprecation }, ...sunset && { sunset } },
          { status, ...headers },
          method
        )
      }
      const document = JSON.parse((yield* call("/openapi.json")).text).paths["/things/{id}"]
      for (const [method, isDeprecated] of [["get", undefined], ["patch", true]] as const) {
        const { deprecated, responses } = document[method]
        assert.deepStrictEqual([deprecated, "Sunset" in responses["204"].headers], [
          isDeprecated,
          isDeprecated === true
        ])
      }
    }))
})
