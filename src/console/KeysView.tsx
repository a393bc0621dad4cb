/** The list of keys: search, filters and pages. */
import { Effect, Option, Redacted } from "effect"
import { useEffect, useRef, useState } from "preact/hooks"
import { type KeysPage, KeyState, type ListedKey } from "../api/Keys.ts"
import { Plan } from "../api/Plans.ts"
import { isWellFormed } from "../api/SecretForm.ts"
import type { AdminClient, AnyAdminError } from "../client/PetstoreClient.ts"
import { type Query, useQuery } from "./Calls.ts"
import { IssueDialog } from "./IssueDialog.tsx"
import { KeyTable } from "./KeyTable.tsx"
import { Alert, PageButton } from "./Parts.tsx"
import { hrefOf, type ListFilter, oneOf } from "./Route.ts"
import { useSession } from "./Session.ts"

const pageSize = 20

const noKeys: ReadonlyArray<ListedKey> = []

/** Milliseconds without input after which a search begins. */
const searchDelayMs = 250

/**
 * Returns a page of keys. The secret of a key finds its key; the request has only the hash of the secret. A response
 * with few matches is not the last one, so further requests fill the page.
 */
const readPage = (
  client: AdminClient["Service"],
  filter: ListFilter,
  query: KeysPage["next"],
  found: KeysPage["keys"] = noKeys
): Effect.Effect<KeysPage, AnyAdminError> => {
  const { search = "" } = filter
  if (isWellFormed(search)) {
    return Effect.map(client.whose(Redacted.make(search)), (key) => ({ keys: Option.toArray(key) }))
  }
  // A part of a secret is not sent either.
  if (findSecret(search) !== undefined) return Effect.succeed({ keys: noKeys })
  const limit = pageSize - found.length
  return Effect.flatMap(client.list({ ...query ?? filter, limit }), ({ keys, next }) => {
    const all = [...found, ...keys]
    return next === undefined || all.length === pageSize
      ? Effect.succeed({ keys: all, ...next && { next } })
      : readPage(client, filter, next, all)
  })
}

interface Paging {
  readonly filterId: string
  readonly queries: ReadonlyArray<NonNullable<KeysPage["next"]>>
}

/** Returns the secret, or the part of one, that a text contains, for example after `Bearer`. */
const findSecret = (text: string): string | undefined => /psk_[0-9A-Za-z]*/.exec(text)?.[0]

export const KeysView = ({ filter }: { readonly filter: ListFilter }) => {
  const { client } = useSession()
  const [search, setSearch] = useState(filter.search ?? "")
  const [isIssuing, setIsIssuing] = useState(false)
  /** The queries of the pages after the first, up to the current one, and the filter that they belong to. */
  const [paging, setPaging] = useState<Paging>({ filterId: "", queries: [] })
  /** The search that this view wrote to the URL. Another one comes from a link or from the Back button. */
  const writtenSearch = useRef(filter.search)
  // The text of a secret is never part of the URL.
  const secret = findSecret(search)
  const isSecret = secret !== undefined
  const setFilter = (change: ListFilter): void => {
    writtenSearch.current = change.search
    location.replace(hrefOf({ view: "keys", filter: change }))
  }
  useEffect(() => {
    if (filter.search === writtenSearch.current) return
    writtenSearch.current = filter.search
    setSearch(filter.search ?? "")
  }, [filter.search])
  useEffect(() => {
    const text = search.trim()
    if (isSecret || text === (filter.search ?? "")) return undefined
    const timer = setTimeout(() => {
      const { search: _, ...rest } = filter
      setFilter({ ...rest, ...text !== "" && { search: text } })
    }, searchDelayMs)
    return () => clearTimeout(timer)
  }, [search, filter.plan, filter.state])
  const shown: ListFilter = isSecret ? { search: secret } : filter
  const filterId = JSON.stringify(shown)
  const queries = paging.filterId === filterId ? paging.queries : []
  const setQueries = (changed: Paging["queries"]): void => setPaging({ filterId, queries: changed })
  const id = `${filterId} ${queries.length}`
  const page = useQuery(readPage(client, shown, queries.at(-1)), id)
  const { keys = noKeys, next } = page.value ?? {}
  const isFiltered = Object.keys(shown).length > 0
  return (
    <>
      <div class="heading">
        <h1>Keys</h1>
        <button type="button" class="primary" onClick={() => setIsIssuing(true)}>Issue key</button>
      </div>
      <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <input
          type="search"
          aria-label="Search keys"
          placeholder="Name, id, last four characters, or a whole secret"
          value={search}
          maxLength={255}
          spellcheck={false}
          autocomplete="off"
          onInput={({ currentTarget }) => setSearch(currentTarget.value)}
        />
        <select
          aria-label="State"
          value={filter.state ?? ""}
          disabled={isSecret}
          onChange={({ currentTarget: { value } }) => {
            const { state: _, ...rest } = filter
            const state = oneOf(KeyState.literals, value)
            setFilter({ ...rest, ...state !== undefined && { state } })
          }}
        >
          <option value="">Any state</option>
          {KeyState.literals.map((state) => <option value={state}>{state}</option>)}
        </select>
        <select
          aria-label="Plan"
          value={filter.plan ?? ""}
          disabled={isSecret}
          onChange={({ currentTarget: { value } }) => {
            const { plan: _, ...rest } = filter
            const plan = oneOf(Plan.literals, value)
            setFilter({ ...rest, ...plan !== undefined && { plan } })
          }}
        >
          <option value="">Any plan</option>
          {Plan.literals.map((plan) => <option value={plan}>{plan}</option>)}
        </select>
      </form>
      {isSecret && <p class="hint">{describeSecret(secret)}</p>}
      {page.failure !== undefined && <Alert>{page.failure}</Alert>}
      <KeyTable keys={keys} isLoading={page.isLoading} emptyText={emptyText(page, isFiltered)} />
      <nav class="pages" aria-label="Pages">
        <span role="status">{page.isLoading ? "Loading…" : describePage(page.value?.keys, queries.length)}</span>
        <PageButton isOff={page.isLoading} onClick={page.reload}>Refresh</PageButton>
        <PageButton isOff={queries.length === 0} onClick={() => setQueries(queries.slice(0, -1))}>Previous</PageButton>
        <PageButton
          isOff={next === undefined || page.isLoading}
          onClick={() => next !== undefined && setQueries([...queries, next])}
        >
          Next
        </PageButton>
      </nav>
      {isIssuing && (
        <IssueDialog
          onIssued={page.reload}
          onClose={() => setIsIssuing(false)}
        />
      )}
    </>
  )
}

/** Explains the search for a secret. The browser computes its hash only on localhost or with HTTPS. */
const describeSecret = (secret: string): string => {
  if (!isWellFormed(secret)) return "This is no whole secret: its length or its checksum is wrong."
  return isSecureContext
    ? "The page sends only the hash of the secret."
    : "The search for a secret needs localhost or HTTPS. Use the command petstore keys whose instead."
}

const emptyText = ({ failure, isLoading }: Query<KeysPage>, isFiltered: boolean): string => {
  if (isLoading) return "Loading…"
  if (failure !== undefined) return "The keys cannot be read."
  return isFiltered ? "No key meets the filter." : "There is no key yet. Issue the first one."
}

const describePage = (keys: ReadonlyArray<ListedKey> | undefined, pagesBefore: number): string => {
  if (keys === undefined) return ""
  if (keys.length === 0) return "No keys"
  const first = pagesBefore * pageSize + 1
  return `Keys ${first} to ${first + keys.length - 1}, oldest first`
}
