/** Tests what the server keeps of the layers around it. */
import { assert, it } from "@effect/vitest"
import { Cause, Effect, ErrorReporter, Layer } from "effect"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import { memory } from "../support/Databases.ts"
import { Service, service } from "../support/Service.ts"

const broken = new Error("broken")

const brokenPets = Layer.succeed(PetRepository, {
  list: () => Effect.die(broken),
  create: () => Effect.die(broken),
  find: () => Effect.die(broken)
})

it.live("An ErrorReporter around the service gets the failures of operations on pets", () => {
  const reported: Array<unknown> = []
  const reporter = ErrorReporter.make(({ cause }) => void reported.push(Cause.squash(cause)))
  return Effect.gen(function*() {
    const { call, unlimitedKey } = yield* Service
    const { status } = yield* call("/v1/pets", { key: yield* unlimitedKey })
    assert.strictEqual(status, 500)
    assert.deepStrictEqual(reported, [broken])
  }).pipe(Effect.provide(Layer.provide(service(Layer.merge(memory, brokenPets)), ErrorReporter.layer([reporter]))))
})
