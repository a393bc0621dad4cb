/** Kills the service on the embedded database (`kill -9`), as often as `KILLS` says. */
import { it } from "@effect/vitest"
import { Effect } from "effect"
import { randomInt } from "node:crypto"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import { dataDirectory } from "../support/Databases.ts"
import * as Load from "../support/Load.ts"
import { issue, start, stop, until } from "../support/Process.ts"

const kills = Number(process.env.KILLS ?? 2)

it.live("Every acknowledged pet is stored once after the service was killed", () =>
  Effect.gen(function*() {
    const DATA_DIR = yield* dataDirectory
    const killUnderLoad = Effect.gen(function*() {
      const service = yield* start({ DATA_DIR })
      const { key } = yield* issue(service)
      const load = yield* Load.run({ address: () => service.address, key, callers: 8 })
      yield* until(() => Load.acknowledged(load.outcomes).length > 0)
      yield* Effect.sleep(randomInt(400))
      yield* stop(service, "SIGKILL")
      yield* load.stop
      return load.outcomes
    })
    const outcomes = yield* Effect.replicateEffect(Effect.scoped(killUnderLoad), kills)
    yield* Load.assertStored(outcomes.flat(), EmbeddedDatabase.layer(DATA_DIR))
  }), 60_000 + kills * 20_000)
