import type { Context } from "effect"
import type { HttpApi, HttpApiEndpoint, HttpApiGroup, HttpApiMiddleware } from "effect/http-api"

type Key = Context.Key<HttpApiMiddleware.AnyId, unknown>

/** The services that a middleware in `Order` requires, but no earlier middleware provides: `never` in a valid order. */
type Missing<Order extends ReadonlyArray<Key>, Inner = never> = Order extends
  readonly [...infer Before extends ReadonlyArray<Key>, infer Last extends Key]
  ? Missing<Before, HttpApiMiddleware.ApplyServices<Last["Identifier"], Inner>>
  : Inner

/** An endpoint, a group or an API. */
interface Target {
  middleware(key: Key): Target
}

type WithOne<Self, Id extends HttpApiMiddleware.AnyId> = Self extends HttpApiGroup.Constraint
  ? HttpApiGroup.AddMiddleware<Self, Id>
  : HttpApiEndpoint.AddMiddleware<Self, Id>

/**
 * The type of `Self` with the middleware in `Order`. Adds the last middleware first, so that each can require services
 * that an earlier one provides.
 */
type With<Self, Order extends ReadonlyArray<Key>> = Order extends
  readonly [...infer Before extends ReadonlyArray<Key>, infer Last extends Key]
  ? With<WithOne<Self, Last["Identifier"]>, Before>
  : Self

/** As `With`, for each group of a union of groups. */
type WithAll<Groups extends HttpApiGroup.Constraint, Order extends ReadonlyArray<Key>> = Order extends
  readonly [...infer Before extends ReadonlyArray<Key>, infer Last extends Key]
  ? WithAll<HttpApiGroup.AddMiddleware<Groups, Last["Identifier"]>, Before>
  : Groups

const addInOrder = (order: ReadonlyArray<Key>) => (self: Target): Target =>
  order.reduceRight((each, key) => each.middleware(key), self)

type Valid<Order extends ReadonlyArray<Key>> = [Missing<Order>] extends [never] ? unknown
  : { readonly missing: Missing<Order> }

/**
 * Adds middleware to an endpoint, or to all endpoints that a group has at this point. Write the middleware in the order
 * in which it runs: HttpApi runs the last added middleware first, so this function adds the list from its end.
 */
export function inOrder<const Order extends ReadonlyArray<Key>>(
  ...order: Order & Valid<Order>
): <Self extends Target>(self: Self) => With<Self, Order>
export function inOrder(...order: ReadonlyArray<Key>) {
  return addInOrder(order)
}

/** As `inOrder`, for the endpoints of all groups of an API. Groups that are added later do not get the middleware. */
export function inOrderForAll<const Order extends ReadonlyArray<Key>>(
  ...order: Order & Valid<Order>
): <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>
) => HttpApi.HttpApi<Id, WithAll<Groups, Order>>
export function inOrderForAll(...order: ReadonlyArray<Key>): unknown {
  return addInOrder(order)
}
