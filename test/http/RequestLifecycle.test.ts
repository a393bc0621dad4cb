import { assert, it } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import { Headers, HttpServerResponse } from "effect/http"
import { NotFound } from "../../src/api/Errors.ts"
import * as ApiRoutes from "../../src/http/ApiRoutes.ts"
import { spanNameOf, withHeaders } from "../../src/http/RequestLifecycle.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { api } from "../../src/resources.ts"
import { assertErrorBody } from "../support/Assertions.ts"
import { memory, memoryWith } from "../support/Databases.ts"
import { Service, service } from "../support/Service.ts"

const die = () => Effect.die(new NotFound({ message: "from a defect" }))
const limiter = { charge: die, peek: die, unban: die, counting: Effect.succeed("own" as const) }
const defects = [
  ["an operation", "/v1/pets", memoryWith(() => ({ list: die }))],
  // A request for an unknown path is charged to its address, once its response is made.
  ["the limit of an address", "/none", Layer.merge(memory, Layer.succeed(RateLimiter, limiter))]
] as const

it.live.each(defects)("A defect in %s is a logged 500, also if it is an error of the API", ([, path, store]) => {
  const logged: Array<string> = []
  const loggers = [Logger.map(Logger.formatJson, (line) => void logged.push(line))]
  return Effect.gen(function*() {
    const { call, newKey } = yield* Service
    const response = yield* call(path, { key: yield* newKey })
    assertErrorBody(response, 500, "internal_error")
    // The response to a defect in the limit has no request id, but its log line has one.
    const requestId = `"requestId":"${response.headers.get("x-request-id") ?? ""}`
    const stackTrace = "\\n    at "
    const texts = [`"level":"ERROR"`, `"message":"The request failed"`, "from a defect", stackTrace, requestId]
    assert.isTrue(logged.some((line) => texts.every((text) => line.includes(text))), logged.join("\n"))
  }).pipe(Effect.provide(service(store, {}, { loggers })))
})

it("A response that gets the headers of its port has real Headers, and is a response", () => {
  const response = withHeaders(HttpServerResponse.text("a"), { "x-request-id": "b" })
  assert.isTrue(Headers.isHeaders(response.headers))
  assert.isTrue(HttpServerResponse.isHttpServerResponse(response))
  assert.deepStrictEqual({ ...response.headers }, { "x-request-id": "b" })
})

it.effect("A span is named by the method and the route, and for an unknown path by the method alone", () =>
  Effect.gen(function*() {
    const nameOf = spanNameOf(yield* ApiRoutes.makeHooks(api, []))
    const requests = [["GET", "/v1/pets/7?a=b"], ["POST", "/v1/pets"], ["GET", "/none/7"], ["PUT", "/v1/pets"]] as const
    const names = requests.map(([method, url]) => nameOf({ method, url }))
    assert.deepStrictEqual(names, ["GET /v1/pets/:petId", "POST /v1/pets", "GET", "PUT"])
  }).pipe(Effect.provide(RateLimiter.layerMemory)))
