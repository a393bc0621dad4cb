/** The audit log, of all keys or of one. */
import type { AuditEntry, AuditQuery, AuditValues } from "../api/Audit.ts"
import { formatNumber, ListPage, When } from "./Parts.tsx"
import { hrefOf } from "./Route.ts"
import { useQuery, useSession } from "./Session.ts"

const isInstant = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

const formatValue = (field: string, value: AuditValues[string] | undefined): string => {
  if (value === undefined || value === null) return "none"
  if (typeof value === "number") return formatNumber(value)
  if (field === "hint") return `…${value}`
  return isInstant.test(value) ? `${value.slice(0, 16).replace("T", " ")} UTC` : value
}

/** The changed fields of an entry: `plan free → pro`. Of a new key, only the fields with a value are shown. */
const Changes = ({ after, before }: Pick<AuditEntry, "after" | "before">) => {
  const fields = Object.keys({ ...before, ...after })
    .filter((field) => before !== null || (after?.[field] ?? null) !== null)
  return (
    <ul class="changes">
      {fields.map((field) => (
        <li key={field}>
          <span class="muted">{field}</span> {before !== null && field in before && (
            <>
              <bdi>{formatValue(field, before[field])}</bdi> →{" "}
            </>
          )}
          <bdi>{formatValue(field, after?.[field])}</bdi>
        </li>
      ))}
    </ul>
  )
}

/** A page of the log, newest entry first. `revision` grows when an action may have added an entry. */
export const AuditTable = ({ query, revision = 0 }: { readonly query: AuditQuery; readonly revision?: number }) => {
  const { client } = useSession()
  const page = useQuery(client.audit(query), `${hrefOf({ view: "audit", query })} ${revision}`)
  const { entries = [], next } = page.value ?? {}
  const { cursor, ...first } = query
  return (
    <ListPage
      name="audit"
      columns={["When", "Action", "Changes", "Operator"]}
      page={page}
      status={`${entries.length} on this page, newest first`}
      first={cursor === undefined ? undefined : hrefOf({ view: "audit", query: first })}
      next={next === undefined ? undefined : hrefOf({ view: "audit", query: next })}
    >
      {entries.map((entry) => (
        <tr key={entry.id}>
          <td>
            <When at={entry.at} />
          </td>
          <td>
            <span class={`action ${entry.action}`}>{entry.action}</span>
            {query.key === undefined && (
              <a class="mono" href={hrefOf({ view: "key", id: entry.keyId })}>{entry.keyId}</a>
            )}
          </td>
          <td>
            <Changes before={entry.before} after={entry.after} />
          </td>
          <td>
            {entry.operator ?? "the service"} <span class="mono">{entry.address}</span>
          </td>
        </tr>
      ))}
    </ListPage>
  )
}

export const AuditLog = ({ query }: { readonly query: AuditQuery }) => (
  <>
    <h1>{query.key === undefined ? "Audit log" : `Audit log of ${query.key}`}</h1>
    <AuditTable query={query} />
  </>
)
