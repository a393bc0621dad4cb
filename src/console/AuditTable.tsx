/** A page of the audit log, of all keys or of one. */
import { useState } from "preact/hooks"
import type { AuditEntry, AuditPage, AuditValues } from "../api/Audit.ts"
import { type Query, useQuery } from "./Calls.ts"
import { formatNumber } from "./Format.ts"
import { Alert, PageButton, When } from "./Parts.tsx"
import { hrefOf } from "./Route.ts"
import { useSession } from "./Session.ts"

const pageSize = 20

/** The fields of an entry in the order of the console, with their names there. */
const names: ReadonlyMap<string, string> = new Map([
  ["name", "name"],
  ["plan", "plan"],
  ["perMinute", "per minute"],
  ["perDay", "per day"],
  ["expiresAt", "expires"],
  ["revokedAt", "revoked"],
  ["bannedUntil", "banned until"],
  ["hint", "secret"],
  ["gracePeriodSeconds", "grace period in seconds"]
])

const isInstant = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

const formatValue = (field: string, value: AuditValues[string] | undefined): string => {
  if (value === undefined || value === null) return "none"
  if (typeof value === "number") return formatNumber(value)
  if (field === "hint") return `…${value}`
  return isInstant.test(value) ? `${value.slice(0, 19).replace("T", " ")} UTC` : value
}

/** The changed fields of an entry: `plan free → pro`. Of a new key, only the fields with a value are shown. */
const Changes = ({ after, before }: Pick<AuditEntry, "after" | "before">) => {
  const fields = [...new Set([...names.keys(), ...Object.keys(before ?? {}), ...Object.keys(after ?? {})])]
    .filter((field) => before === null ? (after?.[field] ?? null) !== null : field in before || field in (after ?? {}))
  return (
    <ul class="changes">
      {fields.map((field) => (
        <li key={field}>
          <span class="muted">{names.get(field) ?? field}</span>{" "}
          {before !== null && field in before && <>{formatValue(field, before[field])} →{" "}</>}
          {formatValue(field, after?.[field])}
        </li>
      ))}
    </ul>
  )
}

const emptyText = ({ failure, isLoading }: Query<AuditPage>): string => {
  if (isLoading) return "Loading…"
  return failure === undefined ? "There is no entry." : "The entries cannot be read."
}

export const AuditTable = ({ keyId, revision = 0 }: {
  /** The key of all entries. By default, entries of all keys are shown. */
  readonly keyId?: string
  /** A number that grows when an action may have added an entry. */
  readonly revision?: number
}) => {
  const { client } = useSession()
  const [queries, setQueries] = useState<ReadonlyArray<NonNullable<AuditPage["next"]>>>([])
  const query = queries.at(-1) ?? { limit: pageSize, ...keyId !== undefined && { key: keyId } }
  const page = useQuery(client.audit(query), JSON.stringify([keyId, queries.length, revision]))
  const { entries = [], next } = page.value ?? {}
  return (
    <>
      {page.failure !== undefined && <Alert>{page.failure}</Alert>}
      <table class={page.isLoading ? "audit stale" : "audit"} aria-busy={page.isLoading}>
        <caption class="sr-only">Audit log, newest first</caption>
        <thead>
          <tr>
            <th scope="col" class="not-narrow">When</th>
            <th scope="col">{keyId === undefined ? "Action, key" : "Action"}</th>
            <th scope="col">Changes</th>
            <th scope="col" class="wide-only">Address</th>
          </tr>
        </thead>
        <tbody>
          {entries.map((entry) => (
            <tr key={entry.id}>
              <td class="nowrap not-narrow">
                <When at={entry.at} />
              </td>
              <td>
                <span class={`action ${entry.action}`}>{entry.action}</span>
                <span class="narrow-only note">
                  <When at={entry.at} />
                </span>
                {keyId === undefined && (
                  <a class="mono" href={hrefOf({ view: "key", id: entry.keyId })}>{entry.keyId}</a>
                )}
              </td>
              <td>
                <Changes before={entry.before} after={entry.after} />
              </td>
              <td class="wide-only mono">{entry.address ?? "the service"}</td>
            </tr>
          ))}
          {entries.length === 0 && (
            <tr>
              <td class="empty" colSpan={5}>{emptyText(page)}</td>
            </tr>
          )}
        </tbody>
      </table>
      <nav class="pages" aria-label="Pages of the audit log">
        <PageButton isOff={page.isLoading} onClick={page.reload}>Refresh</PageButton>
        <PageButton isOff={queries.length === 0} onClick={() => setQueries(queries.slice(0, -1))}>Newer</PageButton>
        <PageButton
          isOff={next === undefined || page.isLoading}
          onClick={() => next !== undefined && setQueries([...queries, next])}
        >
          Older
        </PageButton>
      </nav>
    </>
  )
}
