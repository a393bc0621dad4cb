import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { stripVTControlCharacters } from "node:util"
import * as Logging from "../../src/observability/Logging.ts"

it("A pretty log line has time, level, message and all fields in one line, and escapes control characters", () => {
  const annotations = { path: "\u009b2J", status: 200, before: null, after: { a: 1 } }
  const [message, cause, timestamp] = ["a\nb\u001b[2J", "Error: \u001b[2J\n    at b", "2026-11-24T21:39:10.661Z"]
  const line = Logging.formatPretty({ timestamp, level: "INFO", message, annotations, cause, spans: {}, fiberId: "#1" })
  const expected = `21:39:10.661Z INFO  a\\u000ab\\u001b[2J path=\\u009b2J status=200 before=null after={"a":1}`
  assert.strictEqual(stripVTControlCharacters(line), `${expected}\n  Error: \\u001b[2J\n      at b`)
})

it.live("A logger removes its listeners from the process when its scope ends", () =>
  Effect.gen(function*() {
    const countListeners = () => [process.listenerCount("exit"), process.stderr.listenerCount("error")]
    const before = countListeners()
    const during = yield* Effect.scoped(Effect.map(Layer.build(Logging.layer), countListeners))
    assert.deepStrictEqual([during, countListeners()], [before.map((count) => count + 1), before])
  }))
