/** Colors, bars and times for the output of the command. */
import { DateTime, Effect, Stdio, Terminal } from "effect"
import { CliOutput, TerminalCapabilities } from "effect/cli"

/** Wraps a text in an SGR code of ECMA-48, and in the code that ends it. */
const sgr = (begin: number, end: number) => (text: string): string => `\x1b[${begin}m${text}\x1b[${end}m`

const plain = (text: string): string => text

export interface Style {
  readonly bold: (text: string) => string
  readonly dim: (text: string) => string
  readonly red: (text: string) => string
  readonly green: (text: string) => string
  readonly yellow: (text: string) => string
}

const colored: Style = { bold: sgr(1, 22), dim: sgr(2, 22), red: sgr(31, 39), green: sgr(32, 39), yellow: sgr(33, 39) }
const uncolored: Style = { bold: plain, dim: plain, red: plain, green: plain, yellow: plain }

/** The properties of standard output that change what the command prints. */
export interface Output {
  /** Whether tables have headings and aligned columns. In a pipe they have tabs, unless `FORCE_COLOR` is set. */
  readonly isTable: boolean
  readonly columns: number
  readonly rows: number
  readonly style: Style
}

/** The width of a table whose reader is not a terminal. */
const defaultColumns = 120

export const output = Effect.gen(function*() {
  const { stdoutIsTerminal } = yield* Stdio.Stdio
  const terminal = yield* Terminal.Terminal
  const { canColor } = yield* TerminalCapabilities.TerminalCapabilities
  const columns = yield* terminal.columns
  const result: Output = {
    isTable: canColor || (yield* stdoutIsTerminal),
    columns: columns === 0 ? defaultColumns : columns,
    rows: yield* terminal.rows,
    style: canColor ? colored : uncolored
  }
  return result
})

/**
 * Replaces characters that would move the cursor or reorder the line: control characters, line separators, and the
 * controls of the Unicode bidirectional algorithm. A name can contain the last two.
 */
export const printable = (text: string): string => text.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, "\uFFFD")

const segmenter = new Intl.Segmenter()

/** Returns the text in exactly `width` cells of a terminal: cut off with an ellipsis, or with spaces behind it. */
export const fit = (text: string, width: number): string => {
  const missing = width - CliOutput.displayWidth(text)
  if (missing >= 0) return text + " ".repeat(missing)
  let cut = ""
  let used = 0
  for (const { segment } of segmenter.segment(text)) {
    used += CliOutput.displayWidth(segment)
    if (used > width - 1) break
    cut += segment
  }
  return `${cut}…${" ".repeat(width - 1 - CliOutput.displayWidth(cut))}`
}

export const formatTime = (at: DateTime.Utc | null): string => at === null ? "never" : DateTime.formatIso(at)

const units = [["d", 86_400], ["h", 3_600], ["m", 60], ["s", 1]] as const

/** Returns the time between two instants in its largest unit, as `3h`. */
const formatSpan = (from: DateTime.Utc, to: DateTime.Utc): string => {
  const seconds = Math.max(0, Math.round((to.epochMilliseconds - from.epochMilliseconds) / 1000))
  const [name, length] = units.find(([, unit]) => seconds >= unit) ?? ["s", 1]
  return `${Math.floor(seconds / length)}${name}`
}

export const formatAgo = (at: DateTime.Utc | null, now: DateTime.Utc): string =>
  at === null ? "never" : `${formatSpan(at, now)} ago`

export const formatIn = (at: DateTime.Utc, now: DateTime.Utc): string => `in ${formatSpan(now, at)}`

export const formatCount = (count: number): string => count.toLocaleString("en-US")
