/** The texts of numbers, instants and states of keys. */
import { DateTime } from "effect"
import { type ApiKey, type KeyState, keyStateOf, type ListedKey } from "../api/Keys.ts"

const numbers = new Intl.NumberFormat("en")
const compactNumbers = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 })

export const formatNumber = (value: number): string => numbers.format(value)
export const formatCompact = (value: number): string => compactNumbers.format(value)

/** Formats an instant in UTC, to the minute: `2026-11-23 08:12 UTC`. */
export const formatInstant = (at: DateTime.Utc): string =>
  `${DateTime.formatIso(at).slice(0, 16).replace("T", " ")} UTC`

const units: ReadonlyArray<readonly [unit: string, seconds: number]> = [
  ["d", 86_400],
  ["h", 3_600],
  ["min", 60],
  ["s", 1]
]

/** Formats a duration by its largest unit: `3 d`, `12 s`. */
export const formatDuration = (seconds: number): string => {
  const [unit, size] = units.find(([, length]) => seconds >= length) ?? ["s", 1]
  return `${Math.max(0, Math.floor(seconds / size))} ${unit}`
}

/** Formats an instant relative to now: `5 min ago`, `in 3 d`. */
export const formatRelative = (
  at: DateTime.Utc,
  precision: "minute" | "second" = "second",
  nowMs: number = Date.now()
): string => {
  const seconds = (DateTime.toEpochMillis(at) - nowMs) / 1_000
  if (Math.abs(seconds) < (precision === "minute" ? 60 : 1)) return "just now"
  return seconds < 0 ? `${formatDuration(-seconds)} ago` : `in ${formatDuration(seconds)}`
}

/** The state of a key as the console shows it. */
export type ShownState = KeyState | "banned"

/** Returns the state of a key. A ban of a revoked or expired key does not matter. */
export const stateOf = (
  key: Pick<ApiKey, "expiresAt" | "revokedAt"> & Pick<ListedKey, "ban">,
  nowMs: number = Date.now()
): ShownState => {
  const state = keyStateOf(key, DateTime.makeUnsafe(nowMs))
  return state === "active" && key.ban !== null && DateTime.toEpochMillis(key.ban.until) > nowMs ? "banned" : state
}
