import { assert, it } from "@effect/vitest"
import { Clock, ConfigProvider, Duration, Effect, Exit, Layer, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as Shutdown from "../../src/config/Shutdown.ts"

it("The parts of a graceful shutdown take less than ten seconds together", () => {
  const { maxLogClose, maxServiceClose, maxTelemetryClose } = Shutdown
  const total = Duration.sum(Duration.sum(maxServiceClose, maxTelemetryClose), maxLogClose)
  assert.isBelow(Duration.toSeconds(total), 10)
})

it.effect("Requests in flight get the time that DRAIN_SECONDS and the last writes leave", () =>
  Effect.gen(function*() {
    const rest = Effect.fnUntraced(function*(DRAIN_SECONDS: string) {
      const config = ConfigProvider.layer(ConfigProvider.fromUnknown({ DRAIN_SECONDS }))
      return Duration.toMillis(yield* Effect.provide(Shutdown.maxResponsesClose, config))
    })
    assert.deepStrictEqual(yield* Effect.forEach(["0", "2", "5"], rest), [6_500, 4_500, 1_500])
  }))

it.effect.each<readonly [name: string, finalizer: Effect.Effect<void>, endsAtMs: number, isReported: boolean]>([
  ["ends", Effect.sleep("900 millis"), 900, false],
  ["hangs", Effect.never, 1_000, true]
])(
  "A shutdown that %s within its time ends without the others, and a hang is reported",
  ([, finalizer, ms, isReported]) =>
    Effect.gen(function*() {
      let [reports, endedAt] = [0, NaN]
      const layer = Layer.effectDiscard(Effect.addFinalizer(() => finalizer)).pipe(
        Shutdown.closeWithin(Duration.seconds(1), Effect.sync(() => void reports++))
      )
      const scope = yield* Scope.make()
      yield* Layer.buildWithScope(layer, scope)
      const closed = Effect.map(Clock.currentTimeMillis, (now) => void (endedAt = now))
      yield* Effect.forkChild(Effect.andThen(Scope.close(scope, Exit.void), closed), { startImmediately: true })
      for (let passed = 0; passed < 20; passed++) yield* TestClock.adjust("100 millis")
      assert.deepStrictEqual([endedAt, reports > 0], [ms, isReported])
    })
)
