/**
 * The common parts of the handlers of collections (resources that clients list and create): pages, creates and 404s.
 */
import { Context, Effect, Layer, Option, Scope } from "effect"
import { idCursors } from "../api/CollectionEndpoints.ts"
import { NotFound } from "../api/Errors.ts"
import { CurrentKey, operationMiddleware } from "../api/OperationMiddleware.ts"
import { type Cursor, listLimit } from "../api/Paging.ts"
import type { Collection } from "../collection/Collection.ts"
import type { Filters } from "../collection/Table.ts"
import { PageTurns } from "./PageTurns.ts"

interface PageQuery {
  readonly limit?: number
  readonly cursor?: Cursor
}

/**
 * Returns the items of a page, and the query of the next page, if there is one. Waits between the read and the return
 * until a turn of the event loop has time for the page (`PageTurns.ts`).
 */
export const listPage = <New extends object, Filter extends keyof New, Unavailable, Query extends PageQuery>(
  store: Pick<Collection<New, Filter, unknown, Unavailable>, "list">,
  query: Query,
  filters: Filters<New, Filter>
) => {
  const beganAt = performance.now()
  const list = (after?: bigint) =>
    Effect.map(
      Effect.tap(
        store.list({ ...filters, limit: query.limit ?? listLimit.default, after }),
        PageTurns.use((waitForTurn) => waitForTurn(beganAt))
      ),
      ({ items, next }) =>
        next === undefined ? { items } : { items, next: { ...query, cursor: idCursors.encode(next) } }
    )
  return query.cursor === undefined ? list() : Effect.flatMap(idCursors.decode(query.cursor), list)
}

/**
 * Creates an item. `key` is the idempotency key, which belongs to the API key of the request: the same `key` with
 * another API key creates another item.
 */
export const createItem = <New extends object, Reused, Unavailable>(
  store: Pick<Collection<New, never, Reused, Unavailable>, "create">,
  item: New,
  key: string | undefined
) =>
  key === undefined
    ? store.create(item)
    : CurrentKey.use(({ id: owner }) => store.create(item, { owner, key }))

/** Returns the item in `found`. If there is none, fails with a 404 whose message calls the item `noun`. */
export const orNotFound = <A, E>(noun: string, id: bigint, found: Effect.Effect<Option.Option<A>, E>) =>
  Effect.flatMap(
    found,
    (item) => Effect.fromOption(item, () => new NotFound({ message: `There is no ${noun} ${id}.` }))
  )

type Middleware = Context.Service.Identifier<typeof operationMiddleware[number]>

/**
 * Builds the handlers of a group, which use `store`. For each request, HttpApi copies the context in which handlers
 * are built into that of the request. So keep only what handlers need (cost: docs/performance.md). All else that
 * requests read, such as a Reference that a user of the layers sets, is in the context of the server. The build of the
 * group sees no more than handlers do, so it must not read settings: pass them as options.
 */
export const layer = <Store, Shape, Group>(
  store: Context.Key<Store, Shape>,
  group: Layer.Layer<Group, never, Store | Middleware>
) =>
  Layer.effectContext(
    Effect.updateContext(
      Layer.build(group),
      (context: Context.Context<Store | Middleware | Scope.Scope>) =>
        Context.pick(Scope.Scope, store, ...operationMiddleware)(context)
    )
  )
