/** Formats log entries as text for people: one line per entry, which an error's stack trace follows. */
import { styleText } from "node:util"

/** An entry of the log, as `Logger.formatStructured` returns it. */
interface Entry {
  readonly timestamp: string
  readonly level: string
  readonly message: unknown
  readonly annotations: Readonly<Record<string, unknown>>
  readonly cause: string | undefined
}

const colors = { TRACE: "gray", DEBUG: "gray", INFO: "green", WARN: "yellow", ERROR: "red", FATAL: "red" } as const

const colorOf = (level: string) => Object.entries(colors).find(([name]) => name === level)?.[1] ?? "reset"

/** Escapes control characters, with which a text could change what a terminal shows. */
const escape = (text: string): string =>
  // oxlint-disable-next-line no-control-regex -- these are the characters to escape
  text.replaceAll(/[\u0000-\u001f\u007f-\u009f]/g, (character) =>
    `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`)

const formatValue = (value: unknown): string => {
  if (typeof value === "number") return String(Number(value.toFixed(3)))
  const text = typeof value === "string" ? value : JSON.stringify(value)
  return typeof value === "string" && /[\s"=]|^$/.test(text) ? JSON.stringify(text) : text
}

/** Formats an entry. Its colors depend on the terminal, and on `NO_COLOR` and `FORCE_COLOR`. */
export const format = (
  { annotations, cause, level, message, timestamp }: Entry,
  stream: NodeJS.WritableStream
): string => {
  const style = (color: Parameters<typeof styleText>[0], text: string) => styleText(color, text, { stream })
  const fields = Object.entries(annotations).map(([name, value]) =>
    ` ${style("dim", `${name}=`)}${escape(formatValue(value))}`
  )
  const text = escape(typeof message === "string" ? message : JSON.stringify(message))
  const head = `${style("dim", timestamp.slice(11))} ${style(colorOf(level), level.padEnd(5))} ${text}`
  return `${head}${fields.join("")}${
    cause === undefined ? "" : `\n${cause.split("\n").map((line) => `  ${escape(line)}`).join("\n")}`
  }`
}
