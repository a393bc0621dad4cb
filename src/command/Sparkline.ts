/** Draws numbers as a line of bars, and a share as one bar. */
import { Config, Effect } from "effect"

/** The characters of bars. The first level of a line is 0. */
export interface Bars {
  readonly levels: string
  readonly full: string
  readonly empty: string
}

const blocks: Bars = { levels: "▁▂▃▄▅▆▇█", full: "█", empty: "░" }
const ascii: Bars = { levels: "_.:-=+*#", full: "#", empty: "." }

const variable = (name: string) => Config.withDefault(Config.String(name), "")

/** The characters for the locale of the environment: ASCII if it names another encoding than UTF-8. */
export const bars = Effect.map(
  Effect.all([variable("LC_ALL"), variable("LC_CTYPE"), variable("LANG")]),
  (names) => {
    const locale = names.find((name) => name !== "") ?? "UTF-8"
    return /utf-?8/i.test(locale) ? blocks : ascii
  }
)

/** Draws each count as one character, relative to the largest count. Only 0 has the lowest level. */
export const sparkline = (counts: ReadonlyArray<number>, { levels }: Bars): string => {
  const max = counts.reduce((largest, count) => Math.max(largest, count), 1)
  return counts.map((count) => levels.charAt(Math.ceil((count / max) * (levels.length - 1)))).join("")
}

/** Draws the used part of a limit. Only a limit that is used up has a full bar. */
export const bar = (used: number, limit: number, width: number, { empty, full }: Bars): string => {
  const filled = used >= limit ? width : Math.min(width - 1, Math.ceil((used / limit) * width))
  return full.repeat(filled) + empty.repeat(width - filled)
}
