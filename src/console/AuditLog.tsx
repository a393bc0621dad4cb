import { AuditAction, type AuditQuery, serviceOperator, wordsOf } from "../api/Audit.ts"
import { Changes } from "./Changes.tsx"
import { Choice, countOf, formatInstant, handleSubmit, KeyLink, ListPage, pageSize, textsOf, When } from "./Parts.tsx"
import { hrefOf } from "./Route.ts"
import { useQuery, useSession } from "./Session.ts"

export const AuditTable = ({ query, revision = 0 }: { readonly query: AuditQuery; readonly revision?: number }) => {
  const { client } = useSession()
  const here = hrefOf({ view: "audit", query })
  const page = useQuery(client.audit({ limit: pageSize, ...query }), `${here} ${revision}`)
  const { entries = [], next } = page.value ?? {}
  const { cursor, ...first } = query
  return (
    <ListPage
      name="audit"
      columns={["When", "Action", ...query.key === undefined ? ["Key"] : [], "Changes", "Operator"]}
      page={page}
      status={`${countOf(entries.length, { cursor, here, next })}, newest first (UTC)`}
      here={here}
      first={cursor === undefined ? undefined : hrefOf({ view: "audit", query: first })}
      next={next === undefined ? undefined : hrefOf({ view: "audit", query: next })}
      rows={entries.map(({ action, address, after, at, before, id, keyId, keyName, operator }) => ({
        id,
        cells: [
          <When at={at} />,
          <span class={`action ${action}`}>{wordsOf(action)}</span>,
          ...query.key === undefined ? [<KeyLink id={keyId} name={keyName} />] : [],
          <Changes before={before} after={after} />,
          <>
            {operator ?? serviceOperator} <span class="mono">{address}</span>
          </>
        ]
      }))}
    />
  )
}

const search = handleSubmit((form) => location.assign(`#/audit?${new URLSearchParams(textsOf(form))}`))

export const AuditLog = ({ query }: { readonly query: AuditQuery }) => (
  <>
    <h1>Audit log</h1>
    <form class="filters" role="search" onSubmit={search}>
      {([["operator", "Operator"], ["key", "Key id"]] as const).map(([name, label]) => (
        <input
          key={`${name} ${query[name]}`}
          type="search"
          name={name}
          aria-label={label}
          placeholder={label}
          defaultValue={query[name] ?? ""}
          spellcheck={false}
          autocomplete="off"
        />
      ))}
      {([["since", "From"], ["until", "Before"]] as const).map(([name, label]) => (
        <label key={name}>
          {label}{" "}
          <input type="date" name={name} defaultValue={query[name] && formatInstant(query[name]).slice(0, 10)} />
        </label>
      ))}
      <Choice name="action" value={query.action} none="any action" values={AuditAction.literals} />
      <button type="submit">Search</button>
    </form>
    <AuditTable query={query} />
  </>
)
