/** Tests log lines for people: their form, and that no text can change what a terminal shows. */
import { assert, describe, it } from "@effect/vitest"
import { Writable } from "node:stream"
import { stripVTControlCharacters } from "node:util"
import * as PrettyLines from "../../src/observability/PrettyLines.ts"

const entry = {
  timestamp: "2026-11-24T21:39:10.661Z",
  level: "INFO",
  message: "request",
  annotations: {},
  cause: undefined
}
const stream = new Writable()
const format = (part: Partial<Parameters<typeof PrettyLines.format>[0]>): string =>
  PrettyLines.format({ ...entry, ...part }, stream)

describe("A log line for people", () => {
  it("has the time, the level, the message and all fields in one line", () => {
    assert.strictEqual(
      format({ annotations: { method: "GET", route: "/v1/pets", status: 200, durationMs: 1.23456, keyId: "none" } }),
      "21:39:10.661Z INFO  request method=GET route=/v1/pets status=200 durationMs=1.235 keyId=none"
    )
    assert.strictEqual(
      format({
        level: "WARN",
        message: "Admin action",
        annotations: { name: "a \"b\"", before: null, after: { a: 1 } }
      }),
      `21:39:10.661Z WARN  Admin action name="a \\"b\\"" before=null after={"a":1}`
    )
  })

  it("escapes control characters of messages and fields", () => {
    const line = format({ message: "a\nb\u001b[2J", annotations: { path: "\u009b2J" } })
    assert.strictEqual(line, "21:39:10.661Z INFO  a\\u000ab\\u001b[2J path=\\u009b2J")
    assert.strictEqual(stripVTControlCharacters(line), line)
  })

  it("is followed by the stack trace of an error", () => {
    assert.strictEqual(
      format({ level: "ERROR", message: "The request failed", cause: "Error: a\n    at b" }),
      "21:39:10.661Z ERROR The request failed\n  Error: a\n      at b"
    )
  })
})
