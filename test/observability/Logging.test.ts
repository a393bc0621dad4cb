import { assert, it } from "@effect/vitest"
import { ConfigProvider, Context, Effect, Layer, References } from "effect"
import { stripVTControlCharacters } from "node:util"
import * as Logging from "../../src/observability/Logging.ts"
import { AccessLogEnabled, JsonLines } from "../../src/observability/LogReferences.ts"

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
