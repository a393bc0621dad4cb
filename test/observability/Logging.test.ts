/** Tests log lines for people: their form, and that no text can change what a terminal shows. */
import { assert, describe, it } from "@effect/vitest"
import { stripVTControlCharacters } from "node:util"
import { formatPretty } from "../../src/observability/Logging.ts"

const entry = {
  timestamp: "2026-11-24T21:39:10.661Z",
  level: "INFO",
  message: "request",
  annotations: {},
  cause: undefined,
  spans: {},
  fiberId: "#1"
}
const format = (part: Partial<Parameters<typeof formatPretty>[0]>): string =>
  stripVTControlCharacters(formatPretty({ ...entry, ...part }))

describe("A log line for people", () => {
  it("has the time, the level, the message and all fields in one line", () => {
    assert.strictEqual(
      format({ annotations: { route: "/v1/pets", status: 200, before: null, after: { a: 1 } } }),
      `21:39:10.661Z INFO  request route=/v1/pets status=200 before=null after={"a":1}`
    )
  })

  it("escapes control characters of messages, fields and stack traces", () => {
    assert.strictEqual(
      format({ message: "a\nb\u001b[2J", annotations: { path: "\u009b2J" }, cause: "Error: \u001b[2J\n    at b" }),
      "21:39:10.661Z INFO  a\\u000ab\\u001b[2J path=\\u009b2J\n  Error: \\u001b[2J\n      at b"
    )
  })
})
