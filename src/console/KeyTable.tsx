/** One page of keys as a table. */
import { Array, Effect, Option } from "effect"
import { useEffect, useState } from "preact/hooks"
import type { ApiKeyDetails, ListedKey } from "../api/Keys.ts"
import { runInBackground } from "./Calls.ts"
import { formatCompact, stateOf } from "./Format.ts"
import { StateBadge, UsageBar, When } from "./Parts.tsx"
import { hrefOf } from "./Route.ts"
import { useSession } from "./Session.ts"

type Usage = ApiKeyDetails["usage"]

/**
 * Returns the usage of each key by its id. It is read after the page, four keys at a time, so that it never delays the
 * page.
 */
const useUsages = (keys: ReadonlyArray<ListedKey>): ReadonlyMap<string, Usage> => {
  const { client } = useSession()
  const [usages, setUsages] = useState<ReadonlyMap<string, Usage>>(new Map())
  useEffect(() => {
    const working = keys.filter((key) => ["active", "banned"].includes(stateOf(key)))
    const read = Effect.forEach(
      working,
      ({ id }) => Effect.map(Effect.option(client.find(id)), Option.map(({ usage }) => [id, usage] as const)),
      { concurrency: 4 }
    )
    return runInBackground(Effect.map(read, (found) => setUsages(new Map(Array.getSomes(found)))))
  }, [keys, client])
  return usages
}

const Usages = ({ usage }: { readonly usage: Usage | undefined }) =>
  usage === undefined ? <span class="bars" /> : (
    <span class="bars">
      <UsageBar label="Used of the minute" {...usage.minute} />
      <UsageBar label="Used of the day" {...usage.day} />
    </span>
  )

export const KeyTable = ({ emptyText, isLoading, keys }: {
  readonly keys: ReadonlyArray<ListedKey>
  readonly isLoading: boolean
  readonly emptyText: string
}) => {
  const usages = useUsages(keys)
  return (
    <table class={isLoading ? "keys stale" : "keys"} aria-busy={isLoading}>
      <caption class="sr-only">Keys</caption>
      <thead>
        <tr>
          <th scope="col">Key</th>
          <th scope="col">State</th>
          <th scope="col">Plan</th>
          <th scope="col" class="number wide-only">Limit per minute</th>
          <th scope="col" class="number wide-only">Limit per day</th>
          <th scope="col" class="wide-only">Usage</th>
          <th scope="col" class="wide-only">Secret</th>
          <th scope="col" class="wide-only">Last used</th>
        </tr>
      </thead>
      <tbody>
        {keys.map((key) => (
          <tr key={key.id}>
            <td class="name">
              <a href={hrefOf({ view: "key", id: key.id })} title={key.name}>{key.name}</a>
              <code>{key.id}</code>
            </td>
            <td>
              <StateBadge state={stateOf(key)} />
              {key.secret !== undefined && (
                <span class="note">{key.secret.works ? "the secret works" : "the secret does not work"}</span>
              )}
            </td>
            <td>{key.plan}</td>
            <td class="number wide-only">{formatCompact(key.limits.perMinute)}</td>
            <td class="number wide-only">{formatCompact(key.limits.perDay)}</td>
            <td class="wide-only">
              <Usages usage={usages.get(key.id)} />
            </td>
            <td class="wide-only">
              <code>{key.hint === null ? "" : `…${key.hint}`}</code>
            </td>
            <td class="wide-only">
              {key.lastUsedAt === null
                ? <span class="muted">never</span>
                : <When at={key.lastUsedAt} precision="minute" />}
            </td>
          </tr>
        ))}
        {keys.length === 0 && (
          <tr>
            <td class="empty" colSpan={8}>{emptyText}</td>
          </tr>
        )}
      </tbody>
    </table>
  )
}
