import { assert, it } from "@effect/vitest"
import { Cause, ConfigProvider, Context, Effect, Exit, Layer, Metric, References, Scope } from "effect"
import { TestClock } from "effect/testing"
import { Writable } from "node:stream"
import { setImmediate } from "node:timers/promises"
import { stripVTControlCharacters } from "node:util"
import * as Logging from "../../src/observability/Logging.ts"
import { AccessLogEnabled, JsonLines } from "../../src/observability/LogReferences.ts"
import { until } from "../support/Process.ts"

it("A pretty log line has time, level, message and all fields in one line, and escapes control characters", () => {
  const annotations = { path: "\u009b2J", status: 200, before: null, after: { a: 1 } }
  const [message, cause, timestamp] = ["a\nb\u001b[2J", "Error: \u001b[2J\n    at b", "2026-11-24T21:39:10.661Z"]
  const line = Logging.formatPretty({ timestamp, level: "INFO", message, annotations, cause, spans: {}, fiberId: "#1" })
  const expected = `21:39:10.661Z INFO  a\\u000ab\\u001b[2J path=\\u009b2J status=200 before=null after={"a":1}`
  assert.strictEqual(stripVTControlCharacters(line), `${expected}\n  Error: \\u001b[2J\n      at b`)
})

it.live.each<
  readonly [
    env: Readonly<Record<string, string>>,
    isTTY: boolean,
    level: string,
    ...are: readonly [json: boolean, access: boolean]
  ]
>([
  [{}, false, "Info", true, true],
  [{}, true, "Info", false, true],
  [{ LOG_LEVEL: "warn", LOG_FORMAT: "json" }, true, "Warn", true, true],
  [{ LOG_LEVEL: "trace", LOG_FORMAT: "pretty", ACCESS_LOG: "false" }, false, "Trace", false, false]
])(
  "With %j, on a terminal: %s, the lowest level is %s, lines are JSON: %s, and requests are logged: %s",
  (row) =>
    Effect.gen(function*() {
      const [env, isTTY, ...expected] = row
      const before = process.stderr.isTTY
      yield* Effect.addFinalizer(() => Effect.sync(() => Object.assign(process.stderr, { isTTY: before })))
      Object.assign(process.stderr, { isTTY })
      const config = ConfigProvider.layer(ConfigProvider.fromUnknown(env))
      const context = yield* Layer.build(Layer.provide(Logging.layer, config))
      const isJson = Context.get(context, JsonLines) !== undefined
      const isLogged = Context.get(context, AccessLogEnabled)
      assert.deepStrictEqual([Context.get(context, References.MinimumLogLevel), isJson, isLogged], expected)
    })
)

/** Replaces standard error, until the scope closes, by one whose reader reads nothing until `resume` is called. */
const pausedStderr = Effect.gen(function*() {
  const chunks: Array<string> = []
  let [isPaused, resumeWrite] = [true, () => {}]
  const stderr = new Writable({
    write(chunk: Buffer, _, callback) {
      chunks.push(chunk.toString())
      if (isPaused) resumeWrite = callback
      else callback()
    }
  })
  const before = Object.getOwnPropertyDescriptor(process, "stderr") ?? {}
  yield* Effect.addFinalizer(() => Effect.sync(() => Object.defineProperty(process, "stderr", before)))
  Object.defineProperty(process, "stderr", { value: stderr, configurable: true })
  const resume = () => {
    isPaused = false
    resumeWrite()
  }
  return { resume, received: () => chunks.join("") }
})

const ownMetrics = Effect.provideService(Metric.MetricRegistry, new Map())

/** Builds the logger in a scope of its own. Returns the function that writes a line, and one that closes the scope. */
const openLog = Effect.gen(function*() {
  const scope = yield* Scope.make()
  const env = ConfigProvider.layer(ConfigProvider.fromUnknown({ LOG_FORMAT: "json" }))
  const context = yield* Layer.buildWithScope(Layer.provide(Logging.layer, env), scope)
  const write = Context.get(context, JsonLines)?.write ?? assert.fail()
  return { context, write, close: Scope.close(scope, Exit.void) }
})

it.effect("Each event is one line of JSON on standard error, with its level, time, fields and cause", () =>
  Effect.gen(function*() {
    const { received, resume } = yield* pausedStderr
    resume()
    const { close, context } = yield* openLog
    yield* TestClock.setTime(Date.parse("2026-11-24T04:28:44.065Z"))
    yield* Effect.logInfo("a\nb").pipe(Effect.annotateLogs({ requestId: "id" }), Effect.provideContext(context))
    yield* Effect.provideContext(Effect.logWarning("c", Cause.fail("no disk")), context)
    yield* Effect.provideContext(Effect.logDebug("not logged"), context)
    yield* close
    const [first = "", second = "", ...others] = received().split("\n")
    assert.deepStrictEqual(others, [""])
    const timestamp = "2026-11-24T04:28:44.065Z"
    assert.deepInclude(JSON.parse(first), {
      message: "a\nb",
      level: "INFO",
      timestamp,
      annotations: { requestId: "id" }
    })
    assert.include(JSON.parse(second), { message: "c", level: "WARN" })
    assert.include(JSON.parse(second).cause, "no disk")
  }).pipe(ownMetrics))

it.effect("While standard error is not read, 4 MiB of lines wait, and further ones are dropped and counted", () =>
  Effect.gen(function*() {
    const { received, resume } = yield* pausedStderr
    const { close, write } = yield* openLog
    const dropped = Effect.map(Metric.snapshot, ([counter]) => Reflect.get(counter?.state ?? {}, "count"))
    const lineLength = 64 * 1024
    const writeLines = (count: number) => {
      for (let i = 0; i < count; i++) write("x".repeat(lineLength - 1))
    }
    writeLines(32)
    yield* Effect.promise(() => setImmediate())
    writeLines(32)
    assert.strictEqual(yield* dropped, 0)
    // The line that crosses the bound still waits.
    writeLines(1 + 15)
    assert.strictEqual(yield* dropped, 15)
    resume()
    yield* until(() => received().length === 65 * lineLength)
    write("last")
    yield* close
    assert.isTrue(received().endsWith("x\nlast\n"))
    assert.strictEqual(yield* dropped, 15)
  }).pipe(ownMetrics))

it.effect("On exit, the process waits one second for the reader of standard error, or until all lines are read", () =>
  Effect.gen(function*() {
    const { received, resume } = yield* pausedStderr
    const [lost, read] = [yield* openLog, yield* openLog]
    // A failed test does not hang in the end of a scope.
    yield* Effect.addFinalizer(() => TestClock.adjust("1 minute"))
    lost.write("first")
    const closing = yield* Effect.forkChild(lost.close, { startImmediately: true })
    yield* TestClock.adjust("999 millis")
    assert.isUndefined(closing.pollUnsafe())
    yield* TestClock.adjust("1 millis")
    assert.isDefined(closing.pollUnsafe())
    read.write("second")
    const other = yield* Effect.forkChild(read.close, { startImmediately: true })
    resume()
    yield* until(() => other.pollUnsafe() !== undefined)
    assert.strictEqual(received(), "first\nsecond\n")
  }).pipe(ownMetrics))
