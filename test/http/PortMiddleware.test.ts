import { assert, it } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import { NotFound } from "../../src/api/Errors.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { assertErrorBody } from "../support/Assertions.ts"
import { memory, memoryWith } from "../support/Databases.ts"
import { Service, service } from "../support/Service.ts"

const die = () => Effect.die(new NotFound({ message: "from a defect" }))
const limiter = { charge: die, peek: die, unban: die, counting: Effect.succeed("own" as const) }
const stores = [
  ["the operation", memoryWith(() => ({ list: die }))],
  ["the limiter, behind the operation", Layer.merge(memory, Layer.succeed(RateLimiter, limiter))]
] as const

it.live.each(stores)("A defect in %s is a logged 500, also if it is an error of the API", ([, store]) => {
  const logged: Array<string> = []
  const loggers = [Logger.map(Logger.formatJson, (line) => void logged.push(line))]
  return Effect.gen(function*() {
    const { call, newKey } = yield* Service
    const response = yield* call("/v1/pets", { key: yield* newKey })
    assertErrorBody(response, 500, "internal_error")
    const texts = [`"level":"ERROR"`, "The request failed", "from a defect", response.headers.get("x-request-id") ?? ""]
    assert.isTrue(logged.some((line) => texts.every((text) => line.includes(text))), logged.join("\n"))
  }).pipe(Effect.provide(service(store, {}, { loggers })))
})
