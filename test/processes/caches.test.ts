/** Tests the lease of keys in a running process, through a restore. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { join } from "node:path"
import * as Postgres from "../support/Postgres.ts"
import { issue, send, sendAdmin, start } from "../support/Process.ts"
import { temporaryDirectory } from "../support/Temporary.ts"

it.live.skipIf(Postgres.missing !== undefined)(
  "A process accepts only a dump's keys a second after its restore",
  () =>
    Effect.gen(function*() {
      const { url } = yield* Postgres.run()
      const service = yield* start({ DATABASE_URL: url })
      const [valid, revoked] = [yield* issue(service), yield* issue(service)]
      const dump = join(yield* temporaryDirectory, "petstore.dump")
      yield* Postgres.command("pg_dump", ["-Fc", "-f", dump, url])
      yield* sendAdmin(service, "DELETE", `/keys/${revoked.id}`)
      const keys = [valid, revoked, yield* issue(service)]
      const responses = Effect.forEach(keys, ({ key }) => send(`${service.address}/v1/pets`, key))
      // After too many requests without a valid key, a 429 stands for a 401.
      const statuses = Effect.map(responses, (each) => each.map(({ status }) => status === 429 ? 401 : status))
      assert.deepStrictEqual(yield* statuses, [200, 401, 200])
      // The keys stay in use, so that the process reads them again before their leases end.
      const requesting = yield* Effect.forkChild(Effect.forever(Effect.andThen(statuses, Effect.sleep("20 millis"))))
      yield* Postgres.command("pg_restore", ["--clean", "--if-exists", "--single-transaction", "-d", url, dump])
      yield* Effect.sleep("1 second")
      assert.deepStrictEqual(yield* statuses, [200, 200, 401])
      yield* Fiber.interrupt(requesting)
    })
)
