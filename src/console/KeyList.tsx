/** The list of keys: search, filters and pages. */
import { DateTime, Effect, Option, Redacted } from "effect"
import type { TargetedSubmitEvent } from "preact"
import { useState } from "preact/hooks"
import { type IssuedKey, type KeysPage, type KeysQuery, KeyState, keyStateOf, type ListedKey } from "../api/Keys.ts"
import { listLimit } from "../api/Paging.ts"
import { Plan } from "../api/Plans.ts"
import { isWellFormed } from "../api/SecretForm.ts"
import { SecretDialog } from "./Dialog.tsx"
import { IssueDialog } from "./KeyForm.tsx"
import { formatNumber, ListPage, StateBadge, textsOf, When } from "./Parts.tsx"
import { hrefOf } from "./Route.ts"
import { type Client, type Failure, useQuery, useSession } from "./Session.ts"

/** Reads a page. A response with few matches is not the last one, so further requests fill the page. */
const readPage = (
  client: Client,
  query: KeysQuery,
  found: ReadonlyArray<ListedKey> = []
): Effect.Effect<KeysPage, Failure> => {
  const pageSize = query.limit ?? listLimit.default
  return Effect.flatMap(client.list({ ...query, limit: pageSize - found.length }), ({ keys, next }) => {
    const all = [...found, ...keys]
    if (next === undefined) return Effect.succeed({ keys: all })
    const nextQuery = { ...next, limit: pageSize }
    return all.length === pageSize
      ? Effect.succeed({ keys: all, next: nextQuery })
      : readPage(client, nextQuery, all)
  })
}

/** Returns the secret, or the part of one, that a text contains, for example after `Bearer`. */
const findSecret = (text: string): string | undefined => /psk_[0-9A-Za-z]*/.exec(text)?.[0]

const fail = (message: string) => Effect.fail({ _tag: "InvalidSecret", message })

/** Finds the key of a secret. The request has only the hash of the secret. */
const findBySecret = (client: Client, secret: string): Effect.Effect<KeysPage, Failure> => {
  if (!isWellFormed(secret)) return fail("This is no whole secret: its length or its checksum is wrong.")
  // The browser computes a hash only on localhost or with HTTPS.
  if (!isSecureContext) {
    return fail("The search for a secret needs localhost or HTTPS. Use the command petstore keys whose instead.")
  }
  return Effect.map(client.whose(Redacted.make(secret)), (key) => ({ keys: Option.toArray(key) }))
}

const KeyRow = ({ of: key }: { readonly of: ListedKey }) => (
  <tr>
    <td class="name">
      <a href={hrefOf({ view: "key", id: key.id })}>
        <bdi>{key.name}</bdi>
      </a>
      <code>{key.id}</code>
    </td>
    <td>
      <StateBadge state={keyStateOf(key, DateTime.nowUnsafe())} />
      {key.secret !== undefined && <p>{key.secret.works ? "the secret works" : "the secret does not work"}</p>}
    </td>
    <td>{key.plan}</td>
    <td>{formatNumber(key.limits.perMinute)}, {formatNumber(key.limits.perDay)}</td>
    <td class="mono">{key.hint === null ? "" : `…${key.hint}`}</td>
    <td>{key.lastUsedAt === null ? "never" : <When at={key.lastUsedAt} precision={60} />}</td>
  </tr>
)

/** The parameters that are lists of choices, each with the text of no choice. */
const choices = [
  ["state", "any state", KeyState.literals],
  ["plan", "any plan", Plan.literals],
  ["order", "oldest first", ["newest"]]
] as const

export const KeyList = ({ query }: { readonly query: KeysQuery }) => {
  const { client } = useSession()
  const [search, setSearch] = useState(query.search ?? "")
  /** The search of the URL that the field shows. An effect after the rendering would undo what is typed meanwhile. */
  const [shown, setShown] = useState(query.search)
  /** The secret that the operator searches for. It is never part of the URL. */
  const [secret, setSecret] = useState<string>()
  const [dialog, setDialog] = useState<"issue" | IssuedKey>()
  if (shown !== query.search) {
    setShown(query.search)
    setSearch(query.search ?? "")
  }
  const page = useQuery<KeysPage>(
    secret === undefined ? readPage(client, query) : findBySecret(client, secret),
    `${hrefOf({ view: "keys", query })} ${secret}`
  )
  const { keys = [], next } = page.value ?? {}
  const { cursor, ...first } = query
  const applyFilter = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault()
    // The form has what was typed, also before it is rendered again.
    const texts = textsOf(new FormData(event.currentTarget))
    const found = findSecret(texts.search ?? "")
    setSecret(found)
    if (found === undefined) location.hash = `#/keys?${new URLSearchParams(texts)}`
  }
  return (
    <>
      <div class="heading">
        <h1>Keys</h1>
        <button type="button" class="primary" onClick={() => setDialog("issue")}>Issue key</button>
      </div>
      <form class="filters" role="search" onSubmit={applyFilter}>
        <input
          type="search"
          name="search"
          aria-label="Search keys"
          placeholder="Name, id, last four characters, or a whole secret"
          value={search}
          maxLength={255}
          spellcheck={false}
          autocomplete="off"
          onInput={({ currentTarget }) => setSearch(currentTarget.value)}
        />
        {choices.map(([name, none, literals]) => (
          <select
            key={name}
            name={name}
            aria-label={name}
            value={query[name] ?? ""}
            onChange={({ currentTarget }) => currentTarget.form?.requestSubmit()}
          >
            <option value="">{none}</option>
            {literals.map((each) => <option value={each}>{name === "order" ? `${each} first` : each}</option>)}
          </select>
        ))}
        <button type="submit">Search</button>
      </form>
      <ListPage
        name="keys"
        columns={["Key", "State", "Plan", "Limits per minute, day", "Secret", "Last used"]}
        page={page}
        status={keys.length === 0
          ? "No key was found."
          : `${keys.length} on this page, ${query.order ?? "oldest"} first`}
        first={cursor === undefined ? undefined : hrefOf({ view: "keys", query: first })}
        next={next === undefined ? undefined : hrefOf({ view: "keys", query: next })}
      >
        {keys.map((key) => <KeyRow key={key.id} of={key} />)}
      </ListPage>
      {dialog === "issue" && (
        <IssueDialog
          onClose={() => setDialog(undefined)}
          onIssued={(issued) => {
            setDialog(issued)
            page.reload()
          }}
        />
      )}
      {typeof dialog === "object" && <SecretDialog issued={dialog} onClose={() => setDialog(undefined)} />}
    </>
  )
}
