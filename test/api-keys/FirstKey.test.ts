import { assert, it } from "@effect/vitest"
import { Console, Effect, Layer } from "effect"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import * as FirstKey from "../../src/api-keys/FirstKey.ts"
import { memory } from "../support/Databases.ts"

it.effect("The first start prints an API key of the Free plan, and no later one does, even if that key is revoked", () => {
  let printed = ""
  const start = Effect.scoped(Layer.build(FirstKey.layer("http://localhost/v1/examples")))
  return Effect.gen(function*() {
    const { list, revoke } = yield* ApiKeys
    yield* start
    const { keys } = yield* list({ limit: 2 })
    assert.deepStrictEqual(keys.map(({ plan }) => plan), ["free"])
    for (const { id } of keys) yield* revoke(id)
    yield* start
    assert.deepStrictEqual(printed.match(/curl .*/g)?.map((line) => line.split(" ").at(-1)), [
      "http://localhost/v1/examples"
    ])
  }).pipe(
    Effect.provideService(Console.Console, { ...console, log: (text) => void (printed += String(text)) }),
    Effect.provide(memory)
  )
})
