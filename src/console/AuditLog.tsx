import { AuditAction, type AuditQuery, wordsOf } from "../api/Audit.ts"
import { Changes } from "./Changes.tsx"
import { Choice, handleSubmit, KeyLink, ListPage, textsOf, When } from "./Parts.tsx"
import { hrefOf } from "./Route.ts"
import { useQuery, useSession } from "./Session.ts"

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
      rows={entries.map(({ action, address, after, at, before, id, keyId, keyName, operator }) => ({
        id,
        cells: [
          <When at={at} />,
          <>
            <span class={`action ${action}`}>{wordsOf(action)}</span>
            {query.key === undefined && <KeyLink id={keyId} name={keyName} />}
          </>,
          <Changes before={before} after={after} />,
          <>
            {operator ?? "the service"} <span class="mono">{address}</span>
          </>
        ]
      }))}
    />
  )
}

const search = handleSubmit((form) => location.assign(`#/audit?${new URLSearchParams(textsOf(form))}`))

export const AuditLog = ({ query }: { readonly query: AuditQuery }) => (
  <>
    <h1>{query.key === undefined ? "Audit log" : `Audit log of ${query.key}`}</h1>
    <form class="filters" role="search" onSubmit={search}>
      {query.key !== undefined && <input type="hidden" name="key" value={query.key} />}
      <input
        key={query.operator}
        type="search"
        name="operator"
        aria-label="Operator"
        placeholder="Operator"
        defaultValue={query.operator ?? ""}
        spellcheck={false}
        autocomplete="off"
      />
      <Choice name="action" value={query.action} none="any action" values={AuditAction.literals} />
      <button type="submit">Search</button>
    </form>
    <AuditTable query={query} />
  </>
)
