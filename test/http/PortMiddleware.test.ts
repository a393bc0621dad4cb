import { assert, it } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import { NotFound } from "../../src/api/Errors.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { assertError } from "../support/Assertions.ts"
import { memory, memoryWith } from "../support/Databases.ts"
import { Service, service } from "../support/Service.ts"

it.live("A defect is a logged 500, also if it is an error of the API", () => {
  const logged: Array<string> = []
  const loggers = [Logger.map(Logger.formatJson, (line) => void logged.push(line))]
  const store = memoryWith(() => ({ list: () => Effect.die(new NotFound({ message: "from a defect" })) }))
  return Effect.gen(function*() {
    const { call, newKey } = yield* Service
    const response = yield* call("/v1/pets", { key: yield* newKey })
    assertError(response, 500, "internal_error")
    const requestId = `"requestId":"${response.headers.get("x-request-id")}"`
    const texts = [`"level":"ERROR"`, "The request failed", "from a defect", requestId]
    assert.isTrue(logged.some((line) => texts.every((text) => line.includes(text))), logged.join("\n"))
  }).pipe(Effect.provide(service(store, {}, { loggers })))
})

it.live("A defect behind the operation is a logged 500 with the Error body", () => {
  const logged: Array<string> = []
  const loggers = [Logger.map(Logger.formatJson, (line) => void logged.push(line))]
  const die = () => Effect.die(new Error("from the limiter"))
  const limiter = { charge: die, peek: die, unban: die, counting: Effect.succeed("own" as const) }
  return Effect.gen(function*() {
    const { call } = yield* Service
    const { status, text } = yield* call("/v1/pets")
    assert.deepInclude(JSON.parse(text), { code: "internal_error", status })
    assert.match(logged.join("\n"), /The request failed.*from the limiter/)
  }).pipe(Effect.provide(service(Layer.merge(memory, Layer.succeed(RateLimiter, limiter)), {}, { loggers })))
})
