/** Kills the service and its database (`kill -9`), as often as `KILLS` says. Each acknowledged pet must exist once. */
import { describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { randomInt } from "node:crypto"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import { clientOn, dataDirectory } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"
import * as Postgres from "../support/Postgres.ts"
import { issue, start, stop, until } from "../support/Process.ts"

const kills = Number(process.env.KILLS ?? 2)

/** Starts a service under load, runs `meanwhile`, and kills the service, again and again. Returns all outcomes. */
const killUnderLoad = Effect.fnUntraced(function*(
  env: Readonly<Record<string, string>>,
  meanwhile: Effect.Effect<unknown, unknown> = Effect.void
) {
  const round = Effect.gen(function*() {
    const service = yield* start(env)
    const { key } = yield* issue(service)
    const load = yield* Load.run({ address: () => service.address, key, callers: 8 })
    yield* until(() => Load.acknowledged(load.outcomes).length > 0)
    yield* Effect.sleep(randomInt(200))
    yield* meanwhile
    yield* Effect.sleep(randomInt(200))
    yield* stop(service, "SIGKILL")
    yield* load.stop
    return load.outcomes
  })
  return (yield* Effect.replicateEffect(Effect.scoped(round), kills)).flat()
})

describe(`After ${kills} kills every acknowledged pet is stored once`, () => {
  it.live("on the embedded database", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* dataDirectory
      yield* Load.assertStored(yield* killUnderLoad({ DATA_DIR }), EmbeddedDatabase.layer(DATA_DIR))
    }), 60_000 + kills * 20_000)

  it.live.skipIf(Postgres.missing !== undefined)("on PostgreSQL, which is killed too", () =>
    Effect.gen(function*() {
      const { kill, start: startAgain, url } = yield* Postgres.run()
      // PostgreSQL is killed during commits, and again during the commits after its restart.
      const outcomes = yield* killUnderLoad({ DATABASE_URL: url }, Effect.andThen(kill, startAgain))
      yield* Load.assertStored(outcomes, clientOn(url))
    }), 60_000 + kills * 20_000)
})
