/**
 * Builds the parts that all collections declare alike: cursors, the responses of a list and a create, and the request
 * headers of a create. A collection is a resource that clients list and create.
 */
import { Schema } from "effect"
import { HttpApiSchema } from "effect/http-api"
import { isInt64 } from "./Int64.ts"
import { linkHeader, makeCursorCodec } from "./Paging.ts"
import { idempotencyKey, uncheckedOf } from "./TextSchemas.ts"

/** Encodes and decodes the cursors of a list. A cursor contains the last id of the previous page. */
export const idCursors = makeCursorCodec(String, (text) => {
  const id = /^-?\d{1,19}$/.test(text) ? BigInt(text) : undefined
  return isInt64(id) ? id : undefined
})

export interface PageParts<Item, Query> {
  readonly items: ReadonlyArray<Item>
  readonly next?: Query
}

/** Declares the response of a list: the items of a page as `body`, and the next page's query in the `Link` header. */
export const pageResponse = <Page, Item, Query extends Schema.Codec<unknown, { readonly [key: string]: string }>>(
  page: Schema.Schema<Page>,
  { body, decode, encode, path, query }: {
    readonly body: Schema.Codec<ReadonlyArray<Item>, string>
    /** The path of the list, for the `Link` header. */
    readonly path: string
    readonly query: Query
    readonly decode: (parts: PageParts<Item, Query["Type"]>) => Page
    readonly encode: (page: Page) => PageParts<Item, Query["Type"]>
  }
) =>
  uncheckedOf(page).pipe(HttpApiSchema.encodeToWithHeaders({ body, headers: linkHeader(path, query) }, {
    decode: ({ body: items, headers: { link } }) => decode({ items, ...link !== undefined && { next: link } }),
    encode: (value) => {
      const { items, next } = encode(value)
      return { body: items, headers: next === undefined ? {} : { link: next } }
    }
  }))

export interface CreatedParts<Item> {
  readonly item: Item
  /** Whether an earlier request with the same idempotency key created the item. */
  readonly isReplay: boolean
}

/**
 * Declares the 201 of a create: the item as `body`, and its path in `Location`. `Idempotent-Replayed: true` shows that
 * an earlier request with the same idempotency key created the item.
 */
export const createdResponse = <Created, Item extends { readonly id: bigint }>(
  created: Schema.Schema<Created>,
  { body, decode, encode, noun, path }: {
    readonly body: Schema.Codec<Item, string>
    /** The word for an item in descriptions, in lower case. */
    readonly noun: string
    /** The path of the list. `Location` is this path with the id of the item. */
    readonly path: string
    readonly decode: (parts: CreatedParts<Item>) => Created
    readonly encode: (created: Created) => CreatedParts<Item>
  }
) =>
  uncheckedOf(created).pipe(HttpApiSchema.encodeToWithHeaders({
    body: body.pipe(HttpApiSchema.status(201)),
    headers: {
      location: Schema.String.annotate({ description: `The path of the new ${noun}.`, examples: [`${path}/7`] })
        .pipe(Schema.optionalKey),
      "idempotent-replayed": Schema.Literal("true").annotate({
        description: `Present if an earlier request with the same idempotency key created the ${noun}.`
      }).pipe(Schema.optionalKey)
    }
  }, {
    decode: ({ body: item, headers }) => decode({ item, isReplay: headers["idempotent-replayed"] !== undefined }),
    encode: (value) => {
      const { isReplay, item } = encode(value)
      return {
        body: item,
        headers: { location: `${path}/${item.id}`, ...isReplay && { "idempotent-replayed": "true" as const } }
      }
    }
  }))

/** Declares the request headers of a create: with an idempotency key, a client can safely retry the create. */
export const createHeaders = (noun: string) => ({
  "idempotency-key": Schema.optionalKey(idempotencyKey(
    `Identifies this request, for example a new UUID. A retry with the same idempotency key and ${noun} within 24 ` +
      "hours returns the first response.",
    "0d6f2b8e-3c1a-4f7d-9e52-6a8b7c4d1e90"
  ))
})
