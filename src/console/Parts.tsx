/** Small parts that several views share. */
import { DateTime } from "effect"
import type { ComponentChildren } from "preact"
import { useState } from "preact/hooks"
import { formatInstant, formatRelative, type ShownState } from "./Format.ts"

/** A failure, which screen readers say at once. */
export const Alert = ({ children }: { readonly children: ComponentChildren }) => (
  <p class="alert" role="alert">{children}</p>
)

/** The state of a key, as a coloured word. */
export const StateBadge = ({ state }: { readonly state: ShownState }) => <span class={`badge ${state}`}>{state}</span>

/** An instant relative to now. Its title is the instant in UTC. The last use of a key is known to the minute. */
export const When = ({ at, precision = "second" }: {
  readonly at: DateTime.Utc
  readonly precision?: "minute" | "second"
}) => (
  <time dateTime={DateTime.formatIso(at)} title={formatInstant(at)}>{formatRelative(at, precision)}</time>
)

/**
 * A button that does nothing while `isOff` holds. Unlike a disabled button, it keeps the focus of the keyboard.
 */
export const PageButton = ({ children, isOff, onClick }: {
  readonly isOff: boolean
  readonly children: string
  onClick(): void
}) => (
  <button type="button" aria-disabled={isOff} onClick={() => !isOff && onClick()}>{children}</button>
)

/** A button that copies `text`. Without access to the clipboard it says so. */
export const CopyButton = ({ label, text }: { readonly label: string; readonly text: string }) => {
  const [state, setState] = useState("Copy")
  const copy = (): void => {
    // The clipboard exists only in secure contexts, such as localhost.
    const copied = navigator.clipboard?.writeText(text) ?? Promise.reject(new Error("no clipboard"))
    copied.then(() => setState("Copied"), () => setState("Select and copy it"))
    setTimeout(() => setState("Copy"), 2_000)
  }
  return (
    <button type="button" class="small" aria-label={state === "Copy" ? `Copy ${label}` : state} onClick={copy}>
      {state}
    </button>
  )
}

/** The used part of a limit. */
export const UsageBar = ({ label, limit, remaining }: {
  readonly label: string
  readonly limit: number
  readonly remaining: number
}) => {
  const used = Math.min(limit, Math.max(0, limit - remaining))
  const level = remaining <= 0 ? "full" : used / limit >= 0.8 ? "high" : ""
  return (
    <div
      class={`bar ${level}`}
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={limit}
      aria-valuenow={used}
      aria-valuetext={`${used} of ${limit}`}
    >
      <div style={{ width: `${(used / limit) * 100}%` }} />
    </div>
  )
}
