/** Writes log lines to standard error, and never blocks the event loop for a reader that is slow or has stopped. */
import { type Context, Effect, Metric } from "effect"
import type { Writable } from "node:stream"
import { startAtZero } from "./Metrics.ts"

/** The maximum of characters that wait for the reader. Lines beyond it are dropped. */
const maxPendingCharacters = 4 * 1024 * 1024

/** The maximum time of the last write, when the process ends. */
const maxFlushTime = "1 second"

const dropped = Metric.counter("log_lines_dropped_total", {
  description: "Log lines that were dropped because the reader of standard error is slow.",
  incremental: true
})

/**
 * Writes the lines of one turn of the event loop at once, because a write per line costs as much as a request.
 *
 * After it dropped a line, it takes lines again when half of the pending characters are read. The first of them follows
 * a line that tells how many were dropped.
 */
export class LogWriter {
  readonly #stream: Writable
  readonly #formatWarning: (message: string) => string
  readonly #context: Context.Context<never>
  /** The lines of this turn. */
  #lines = ""
  /** The number of lines that were dropped since a line was last written. */
  #dropped = 0

  constructor(stream: Writable, formatWarning: (message: string) => string, context: Context.Context<never>) {
    this.#stream = stream
    this.#formatWarning = formatWarning
    this.#context = context
  }

  readonly write = (line: string): void => {
    const pending = this.#lines.length + this.#stream.writableLength
    if (pending > (this.#dropped === 0 ? maxPendingCharacters : maxPendingCharacters / 2)) {
      this.#dropped++
      dropped.updateUnsafe(1, this.#context)
      return
    }
    if (this.#lines === "") setImmediate(this.flush)
    if (this.#dropped > 0) {
      const warning = `${this.#dropped} log lines were dropped because the reader of standard error is slow`
      this.#lines += `${this.#formatWarning(warning)}\n`
      this.#dropped = 0
    }
    this.#lines += `${line}\n`
  }

  /** Passes the lines of this turn to the stream. */
  readonly flush = (): void => {
    if (this.#lines === "") return
    this.#stream.write(this.#lines)
    this.#lines = ""
  }
}

/** Makes a writer. When the scope closes or the process exits, it flushes the last lines. */
export const make = (stream: Writable, formatWarning: (message: string) => string) =>
  Effect.acquireRelease(
    Effect.map(Effect.andThen(startAtZero([dropped]), Effect.context()), (context) => {
      const writer = new LogWriter(stream, formatWarning, context)
      process.on("exit", writer.flush)
      return writer
    }),
    (writer) =>
      Effect.suspend(() => {
        process.off("exit", writer.flush)
        writer.flush()
        return Effect.callback<void>((resume) => void stream.write("", () => resume(Effect.void)))
      }).pipe(Effect.timeoutOption(maxFlushTime))
  )
