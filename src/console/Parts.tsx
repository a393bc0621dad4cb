import { DateTime } from "effect"
import type { ComponentChildren, TargetedSubmitEvent } from "preact"
import { useState } from "preact/hooks"
import { wordsOf } from "../api/Audit.ts"
import type { KeyState } from "../api/KeySchemas.ts"
import type { Limits } from "../api/Plans.ts"
import { hrefOf } from "./Route.ts"
import type { Query } from "./Session.ts"

const numbers = new Intl.NumberFormat("en")

export const formatNumber = (value: number): string => numbers.format(value)

export const formatLimits = ({ perDay, perMinute }: Limits): string =>
  `${formatNumber(perMinute)} a minute, ${formatNumber(perDay)} a day`

export const formatInstant = (at: DateTime.Utc): string => DateTime.formatIso(at).slice(0, 16).replace("T", " ")

const units = [["h", 3_600], ["min", 60], ["s", 1]] as const

/** The maximum number of rows on a page, unless the URL has a `limit`. */
export const pageSize = 50

/**
 * Maps the URL of a page that the operator reached with "Next page" to the URL of the page before it, and to the number
 * of rows on all pages before it, unless the operator began on a later page than the first. The page itself cannot know
 * them, because cursors lead only forwards.
 */
const pagesBefore = new Map<string, { readonly href: string; readonly rows: number | undefined }>()

/**
 * Describes which rows of the list the page at `here` has. The total is known only on the last page, if the operator
 * came through the pages before it. The service does not count rows: with 500,000 keys, a count of at most 10,000 took
 * the database 3 to 8 ms, but the page itself 0.3 ms.
 */
export const countOf = (rows: number, { cursor, here, next }: {
  readonly cursor: string | undefined
  readonly here: string
  readonly next: unknown
}): string => {
  const before = cursor === undefined ? 0 : pagesBefore.get(here)?.rows
  if (before === undefined) return `${formatNumber(rows)} on this page`
  const last = formatNumber(before + rows)
  if (before === 0 && next === undefined) return `${last} in total`
  return `${formatNumber(before + 1)}–${last} of ${next === undefined ? last : "more"}`
}

/**
 * Formats a time relative to now, such as `3 h ago`, or "just now" if it is within `precision` seconds. A time that is
 * a day away or more is formatted as date and time in UTC.
 */
const formatRelative = (at: DateTime.Utc, precision: number): string => {
  const seconds = (DateTime.toEpochMillis(at) - Date.now()) / 1_000
  if (Math.abs(seconds) >= 86_400) return `${formatInstant(at)} UTC`
  const [unit, size] = units.find(([, length]) => Math.abs(seconds) >= length && length >= precision) ?? ["", 0]
  if (size === 0) return "just now"
  const text = `${Math.floor(Math.abs(seconds) / size)} ${unit}`
  // For a future time, add the time of day, which is easier to compare with logs.
  return seconds < 0 ? `${text} ago` : `in ${text} (${formatInstant(at).slice("2030-12-31 ".length)} UTC)`
}

export const When = ({ at, precision = 1 }: { readonly at: DateTime.Utc; readonly precision?: number }) => (
  <time dateTime={DateTime.formatIso(at)} title={`${formatInstant(at)} UTC`}>{formatRelative(at, precision)}</time>
)

export const LastUse = ({ at }: { readonly at: DateTime.Utc | null }) =>
  at === null ? <>never</> : <When at={at} precision={60} />

/** `<bdi>` keeps right-to-left characters in a name from reordering the text around it. */
export const Name = ({ of: { name } }: { readonly of: { readonly name: string } }) => (
  <strong>
    <bdi>{name}</bdi>
  </strong>
)

export const KeyLink = ({ id, name }: { readonly id: string; readonly name: string | null }) => (
  <>
    <a class="key" href={hrefOf({ view: "key", id })}>
      <bdi>{name ?? "deleted key"}</bdi>
    </a>
    <code class="key">{id}</code>
  </>
)

export const StateBadge = ({ state }: { readonly state: KeyState }) => <span class={`badge ${state}`}>{state}</span>

export const Alert = ({ children }: { readonly children: ComponentChildren }) => (
  <p class="alert" role="alert">{children}</p>
)

export const Choice = ({ label = wordsOf, name, none, value = "", values }: {
  readonly label?: (value: string) => string
  readonly name: string
  readonly none: string
  readonly value?: string | undefined
  readonly values: ReadonlyArray<string>
}) => (
  <select name={name} aria-label={name} value={value} onChange={(event) => event.currentTarget.form?.requestSubmit()}>
    <option value="">{none}</option>
    {values.map((each) => <option key={each} value={each}>{label(each)}</option>)}
  </select>
)

/** One page of a list as a table. In a narrow window, CSS shows each row as a card, with labels from `data-column`. */
export const ListPage = ({ columns, first, here, name, next, page, rows, status }: {
  readonly name: string
  readonly columns: ReadonlyArray<string>
  readonly page: Query<unknown>
  readonly rows: ReadonlyArray<{ readonly id: number | string; readonly cells: ReadonlyArray<ComponentChildren> }>
  readonly status: string
  /** The URL of this page: the link "Previous page" of the next page leads to it. */
  readonly here: string
  readonly first?: string | undefined
  readonly next?: string | undefined
}) => {
  const previous = pagesBefore.get(here)
  const remember = (): void => {
    // While a page loads, `rows` and `next` are still those of the page that was shown before.
    if (page.isLoading || next === undefined) return
    const before = first === undefined ? 0 : previous?.rows
    pagesBefore.set(next, { href: here, rows: before === undefined ? undefined : before + rows.length })
  }
  return (
    <>
      {page.failure !== undefined && <Alert>{page.failure}</Alert>}
      <table class={name} aria-label={name} aria-busy={page.isLoading}>
        <thead>
          <tr>{columns.map((column) => <th key={column} scope="col">{column}</th>)}</tr>
        </thead>
        <tbody>
          {rows.map(({ cells, id }) => (
            <tr key={id}>{cells.map((cell, index) => <td data-column={columns[index]}>{cell}</td>)}</tr>
          ))}
        </tbody>
      </table>
      <nav class="pages" aria-label={`Pages of ${name}`}>
        <span class="muted" role="status">
          {page.isLoading
            ? "Loading…"
            : page.value === undefined
            ? ""
            : rows.length === 0
            ? "Nothing was found."
            : status}
        </span>
        <button type="button" onClick={page.reload}>Refresh</button>
        {first !== undefined && <a class="button" href={first}>First page</a>}
        {previous !== undefined && <a class="button" href={previous.href}>Previous page</a>}
        {next !== undefined && <a class="button" href={next} onClick={remember}>Next page</a>}
      </nav>
    </>
  )
}

export const CopyButton = ({ label, text }: { readonly label: string; readonly text: string }) => {
  const [state, setState] = useState("Copy")
  // `async` turns a missing `navigator.clipboard` (insecure context) into a rejected promise.
  const copy = async (): Promise<void> => navigator.clipboard.writeText(text)
  const onClick = () => copy().then(() => setState("Copied"), () => setState("Select and copy it"))
  return (
    <button type="button" aria-label={state === "Copy" ? `Copy ${label}` : state} onClick={onClick}>{state}</button>
  )
}

export const textsOf = (form: FormData): Readonly<Record<string, string>> =>
  Object.fromEntries(
    [...form].flatMap(([name, value]) => typeof value === "string" && value.trim() !== "" ? [[name, value.trim()]] : [])
  )

export const handleSubmit = (use: (form: FormData) => void) => (event: TargetedSubmitEvent<HTMLFormElement>): void => {
  event.preventDefault()
  use(new FormData(event.currentTarget))
}
