import { DateTime, Effect } from "effect"
import { Hex } from "effect/encoding"
import type { ComponentChildren } from "preact"
import { useState } from "preact/hooks"
import * as Brand from "../api/Brand.ts"
import type { IssuedKey, KeysPage, KeysQuery, ListedKey } from "../api/KeySchemas.ts"
import { KeyState, keyStateOf } from "../api/KeySchemas.ts"
import { Plan } from "../api/Plans.ts"
import { findSecret, isWellFormed } from "../api/Secrets.ts"
import { SecretDialog } from "./Dialog.tsx"
import { IssueDialog } from "./KeyForm.tsx"
import { Alert, Choice, countOf, KeyLink, LastUse, ListPage, pageSize, StateBadge, When } from "./Parts.tsx"
import { formatInstant, formatLimits, handleSubmit, textsOf } from "./Parts.tsx"
import { hrefOf } from "./Route.ts"
import { type Client, type Failure, useAction, useQuery, useSession } from "./Session.ts"

/**
 * Sends requests until the page is full or the list ends: a response can have fewer keys than its limit, although more
 * keys match.
 */
const readPage = (client: Client, query: KeysQuery, found: KeysPage["keys"] = []): Effect.Effect<KeysPage, Failure> => {
  const size = query.limit ?? pageSize
  return Effect.flatMap(client.list({ ...query, limit: size - found.length }), ({ keys, next }) => {
    const all = [...found, ...keys]
    if (next === undefined) return Effect.succeed({ keys: all })
    const nextQuery = { ...next, limit: size }
    return all.length === size ? Effect.succeed({ keys: all, next: nextQuery }) : readPage(client, nextQuery, all)
  })
}

/** Hashes a secret for the search, so that the secret itself appears in no request and no URL. */
const hashOf = (secret: string): Effect.Effect<string, Failure> => {
  const message = isWellFormed(secret)
    ? `Searching for a secret works only on localhost or over HTTPS. Otherwise, run “${Brand.name} keys whose”.`
    : "This is not a complete secret: its length or checksum is wrong. Copy it again."
  if (!isSecureContext || !isWellFormed(secret)) return Effect.fail({ _tag: "InvalidSecret", message })
  const digest = Effect.promise(() => crypto.subtle.digest("SHA-256", new TextEncoder().encode(secret)))
  return Effect.map(digest, (hash) => Hex.encode(new Uint8Array(hash)))
}

const cellsOf = (key: ListedKey, showsExpiry: boolean): ReadonlyArray<ComponentChildren> => [
  <KeyLink id={key.id} name={key.name} />,
  <>
    <StateBadge state={keyStateOf(key, DateTime.nowUnsafe())} />
    {key.secret !== undefined && <p>{key.secret.works ? "the secret works" : "the secret does not work"}</p>}
  </>,
  key.plan,
  showsExpiry && key.expiresAt !== null ? <When at={key.expiresAt} /> : formatLimits(key.limits),
  <span class="mono">{key.hint === null ? "" : `…${key.hint}`}</span>,
  <LastUse at={key.lastUsedAt} />
]

const KeyTable = ({ query, revision }: { readonly query: KeysQuery; readonly revision: number }) => {
  const { client } = useSession()
  const href = hrefOf({ view: "keys", query })
  const page = useQuery(readPage(client, { order: "newest", ...query }), `${href} ${revision}`)
  const { keys = [], next } = page.value ?? {}
  const { cursor, ...first } = query
  const showsExpiry = query.expiresBefore !== undefined
  return (
    <ListPage
      name="keys"
      columns={["Key", "State", "Plan", showsExpiry ? "Expires" : "Limits", "Secret", "Last used"]}
      page={page}
      status={query.secretHash === undefined
        ? `${countOf(keys.length, { cursor, here: href, next })}, ${
          query.search === undefined ? `${query.order ?? "newest"} first` : "by name"
        }`
        : "The key that this secret belongs to"}
      here={href}
      first={cursor === undefined ? undefined : hrefOf({ view: "keys", query: first })}
      next={next === undefined ? undefined : hrefOf({ view: "keys", query: next })}
      rows={keys.map((key) => ({ id: key.id, cells: cellsOf(key, showsExpiry) }))}
    />
  )
}

const formatDate = (at: DateTime.Utc): string => formatInstant(at).slice(0, "2030-12-31".length)

const inThirtyDays = (): string => formatDate(DateTime.add(DateTime.nowUnsafe(), { days: 30 }))

export const KeyList = ({ query }: { readonly query: KeysQuery }) => {
  const { mayChange } = useSession()
  const { expiresBefore, order, plan, search: searched = "", state } = query
  const expiry = expiresBefore && formatDate(expiresBefore)
  const href = hrefOf({ view: "keys", query })
  const [search, setSearch] = useState(searched)
  /** The URL that last set the search field. Set during rendering, because an effect could overwrite newer input. */
  const [shown, setShown] = useState(href)
  const [dialog, setDialog] = useState<"issue" | IssuedKey>()
  const [revision, setRevision] = useState(0)
  const hashing = useAction()
  if (shown !== href) {
    setShown(href)
    setSearch(searched)
  }
  const onClose = (): void => setDialog(undefined)
  const onIssued = (issued: IssuedKey): void => {
    setDialog(issued)
    setRevision((count) => count + 1)
  }
  const applyFilter = handleSubmit((form) => {
    const filter = textsOf(form)
    const secret = findSecret(filter.search ?? "")
    if (secret === undefined) location.hash = `#/keys?${new URLSearchParams(filter)}`
    else {
      hashing.run(hashOf(secret), (secretHash) => {
        setSearch("")
        location.hash = hrefOf({ view: "keys", query: { secretHash } })
      })
    }
  })
  return (
    <>
      <div class="heading">
        <h1>Keys</h1>
        {mayChange && <button type="button" class="primary" onClick={() => setDialog("issue")}>Issue key</button>}
      </div>
      <form class="filters" role="search" onSubmit={applyFilter}>
        <input
          type="search"
          name="search"
          aria-label="Search keys"
          placeholder="Start of name, id, last 4 characters or secret"
          value={search}
          maxLength={255}
          spellcheck={false}
          autocomplete="off"
          onInput={({ currentTarget }) => setSearch(currentTarget.value)}
        />
        <Choice name="state" value={state} none="any state" values={KeyState.literals} />
        <Choice
          name="expiresBefore"
          value={expiry}
          none="any expiry"
          values={[expiry ?? inThirtyDays()]}
          label={(date) => date === inThirtyDays() ? "expires within 30 days" : `expires by ${date}`}
        />
        <Choice name="plan" value={plan} none="any plan" values={Plan.literals} />
        <Choice
          name="order"
          value={order === "oldest" ? order : undefined}
          none="newest first"
          values={["oldest"]}
          label={(chosen) => `${chosen} first`}
        />
        <button type="submit">Search</button>
      </form>
      {hashing.failure !== undefined && findSecret(search) !== undefined && <Alert>{hashing.failure}</Alert>}
      <KeyTable query={query} revision={revision} />
      {dialog === "issue" && <IssueDialog onClose={onClose} onIssued={onIssued} />}
      {typeof dialog === "object" && <SecretDialog issued={dialog} onClose={onClose} />}
    </>
  )
}
