/** The operations of a collection, and a collection in memory. */
import { Clock, Context, Duration, Effect, Layer, Option } from "effect"
import { type Filters, type Item, makeCodec, type Table } from "./Table.ts"

/** Selects a page: the first `limit` items whose id is higher than `after`. */
export interface Range {
  /** The maximum number of items. */
  readonly limit: number
  /** The last id of the previous page. */
  readonly after?: bigint | undefined
}

/** A page of items. */
export interface Page<A> {
  /** The items, by ascending id. */
  readonly items: ReadonlyArray<A>
  /** The last id of the page, if there is a next page. */
  readonly next?: bigint
}

/** Cuts `found` to `limit` items. Callers fetch `limit + 1`: an extra item means that there is a next page. */
export const toPage = <A extends { readonly id: bigint }>(found: ReadonlyArray<A>, limit: number): Page<A> => {
  if (found.length <= limit) return { items: found }
  const items = found.slice(0, limit)
  const last = items.at(-1)
  return last === undefined ? { items } : { items, next: last.id }
}

/** Identifies a create, so that its retry creates no second item. */
export interface Idempotency {
  /** The id of the API key that sent the idempotency key. */
  readonly owner: string
  /** The idempotency key. */
  readonly key: string
}

/** For this time after a create with an idempotency key, the same owner can create no other item with that key. */
export const idempotencyKeyLifetime = Duration.hours(24)

/** The result of a create. */
export interface Created<A> {
  /** The created item. */
  readonly item: A
  /** Whether an earlier create with the same idempotency key created the item. */
  readonly isReplay: boolean
}

/** Stores the items of a resource. */
export interface Collection<New extends object, Filter extends keyof New, Reused, Unavailable> {
  /** Returns items by ascending id. */
  list(selection: Range & Filters<New, Filter>): Effect.Effect<Page<Item<New>>, Unavailable>

  /**
   * Creates an item. On PostgreSQL, it is committed once the effect succeeds, or with the transaction of the caller. If
   * an earlier create had the same `idempotency` within the last 24 hours, returns the item as that create made it.
   * Fails with `Reused` if that create was of another collection, or of an item that differs from `item`.
   */
  create(item: New, idempotency?: Idempotency): Effect.Effect<Created<Item<New>>, Reused | Unavailable>

  /** Returns `None` for an unknown id. */
  find(id: bigint): Effect.Effect<Option.Option<Item<New>>, Unavailable>

  /**
   * Replaces an item with the result of `replace`, or deletes it if the result is `undefined`. Returns the item after
   * the change, or the deleted one. Returns `None` for an unknown id.
   *
   * No other change of the item comes between the call of `replace` and the write. `replace` can run several times, and
   * must have no effects.
   */
  change(
    id: bigint,
    replace: (item: Item<New>) => New | undefined
  ): Effect.Effect<Option.Option<Item<New>>, Unavailable>
}

/**
 * Makes the store of any table as a layer of `service`: in memory (`layerMemory`), on PostgreSQL
 * (`SqlCollection.layer`), or with injected faults (`faultyStores` of `TestService.ts`).
 */
export interface MakeStore<E, R> {
  <Id, New extends object, Filter extends keyof New, Reused, Unavailable>(
    service: Context.Key<Id, Collection<New, Filter, Reused, Unavailable>>,
    table: Table<New, Filter, Reused, Unavailable>
  ): Layer.Layer<Id, E, R>
}

/** The create that used an idempotency key: the id of its item, and the item's canonical text. */
interface Claim {
  readonly id: bigint
  readonly text: string
  readonly expiresAtMs: number
}

/** The idempotency keys that all collections in memory share. */
export class MemoryClaims extends Context.Service<MemoryClaims, Map<string, Claim>>()("collection/MemoryClaims") {
  static readonly layer = Layer.sync(MemoryClaims, () => new Map())
}

export const makeMemory = Effect.fnUntraced(
  function*<New extends object, Filter extends keyof New, Reused, Unavailable>(
    table: Table<New, Filter, Reused, Unavailable>
  ): Effect.gen.Return<Collection<New, Filter, Reused, Unavailable>, never, MemoryClaims> {
    const { canonicalText, matcher } = makeCodec(table)
    const claims = yield* MemoryClaims
    const items = new Map<bigint, Item<New>>()
    let lastId = 0n
    return {
      list: (selection) =>
        Effect.sync(() => {
          const { after = 0n, limit } = selection
          const matches = matcher(selection)
          return toPage(
            items.values().filter((item) => item.id > after && matches(item)).take(limit + 1).toArray(),
            limit
          )
        }),
      create: Effect.fnUntraced(function*(newItem, idempotency) {
        const nowMs = yield* Clock.currentTimeMillis
        const text = canonicalText(newItem)
        const claimId = idempotency && JSON.stringify([idempotency.owner, idempotency.key])
        const claimed = claimId === undefined ? undefined : claims.get(claimId)
        if (claimed !== undefined && nowMs < claimed.expiresAtMs) {
          if (claimed.text !== text) return yield* Effect.fail(table.keyReused)
          return { item: { id: claimed.id, ...newItem }, isReplay: true }
        }
        const item = { id: ++lastId, ...newItem }
        items.set(item.id, item)
        if (claimId !== undefined) {
          claims.set(claimId, { id: item.id, text, expiresAtMs: nowMs + Duration.toMillis(idempotencyKeyLifetime) })
        }
        return { item, isReplay: false }
      }),
      find: (id) => Effect.sync(() => Option.fromUndefinedOr(items.get(id))),
      change: (id, replace) =>
        Effect.sync(() => {
          const item = items.get(id)
          if (item === undefined) return Option.none()
          const replaced = replace(item)
          if (replaced === undefined) {
            items.delete(id)
            return Option.some(item)
          }
          const changed = { ...replaced, id }
          items.set(id, changed)
          return Option.some(changed)
        })
    }
  }
)

/** Keeps items in memory, for tests. */
export const layerMemory: MakeStore<never, never> = (service, table) =>
  Layer.effect(service, makeMemory(table)).pipe(Layer.provide(MemoryClaims.layer))
