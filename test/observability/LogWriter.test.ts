/** Tests the writer of log lines on a stream whose reader stops and resumes. */
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { Writable } from "node:stream"
import { setImmediate } from "node:timers/promises"
import * as LogWriter from "../../src/observability/LogWriter.ts"

/** A stream that keeps each chunk pending until `resume` is called. */
const stoppedStream = () => {
  let received = ""
  let isStopped = true
  let pending: (() => void) | undefined
  const stream = new Writable({
    decodeStrings: false,
    write(chunk: string, _encoding, done) {
      received += chunk
      if (isStopped) pending = done
      else done()
    }
  })
  const resume = () => {
    isStopped = false
    pending?.()
  }
  return { stream, resume, lines: () => received.split("\n").slice(0, -1) }
}

const turn = Effect.promise(() => setImmediate())

describe("LogWriter", () => {
  it.live("drops lines while the reader has stopped, in bounded memory, and tells how many", () =>
    Effect.gen(function*() {
      const { lines, resume, stream } = stoppedStream()
      const writer = new LogWriter.LogWriter(stream, (message) => `WARN ${message}`, Context.empty())
      const line = "x".repeat(1_000)
      for (let i = 0; i < 10_000; i++) {
        writer.write(line)
        if (i % 100 === 0) yield* turn
      }
      yield* turn
      assert.isBelow(stream.writableLength, 4.5 * 1024 * 1024)
      resume()
      yield* turn
      writer.write("after")
      yield* turn
      const received = lines()
      const written = received.filter((text) => text === line).length
      assert.isAbove(written, 4_000)
      assert.deepStrictEqual(received.slice(-2), [
        `WARN ${10_000 - written} log lines were dropped because the reader of standard error is slow`,
        "after"
      ])
    }))

  it.live("writes the lines of one turn of the event loop together and in order", () =>
    Effect.gen(function*() {
      const { lines, resume, stream } = stoppedStream()
      resume()
      const writer = new LogWriter.LogWriter(stream, String, Context.empty())
      for (const line of ["1", "2", "3"]) writer.write(line)
      assert.lengthOf(lines(), 0)
      yield* turn
      assert.deepStrictEqual(lines(), ["1", "2", "3"])
    }))

  it.effect("waits at most one second for the reader when the scope closes", () =>
    Effect.gen(function*() {
      const { stream } = stoppedStream()
      const closing = yield* Effect.forkChild(Effect.scoped(
        Effect.map(LogWriter.make(stream, String), ({ write }) => write("last"))
      ))
      yield* TestClock.adjust("999 millis")
      assert.isUndefined(closing.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      yield* Fiber.join(closing)
    }))
})
