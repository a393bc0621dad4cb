/**
 * Creates items on PostgreSQL. Up to 250 concurrent creates share one statement and its commit.
 *
 * Each process runs one INSERT at a time for each table, so the items of a process become visible in ascending order of
 * ids. There is one exception: if the connection is lost or the deadline passes, the server can commit that INSERT
 * later. All statements insert idempotency keys in the same order, so statements of several processes cannot deadlock.
 *
 * Neither promise holds for a create within a transaction of its caller. The item becomes visible when that transaction
 * commits, perhaps after items with higher ids. Two transactions with several creates each can deadlock.
 */
import { Clock, Duration, Effect, type Schema } from "effect"
import { SqlClient } from "effect/sql"
import { hash } from "node:crypto"
import * as StatementBatcher from "../database/StatementBatcher.ts"
import { type Created, type Idempotency, idempotencyKeyLifetime } from "./Collection.ts"
import { type Item, makeCodec, type Table } from "./Table.ts"

interface CreatedRow {
  readonly id: unknown
  readonly isReplay?: unknown
  /** The hash of the item that the idempotency key created earlier, if that item differs from the new one. */
  readonly otherHash?: unknown
}

export const make = Effect.fnUntraced(function*<New extends object, Filter extends keyof New, Reused, Unavailable>(
  table: Table<New, Filter, Reused, Unavailable>
) {
  /** The batcher merges calls that pass the same object, so each call must pass a new object. */
  interface Create {
    readonly item: New
    readonly claim: (Idempotency & { readonly hash: string }) | undefined
  }

  const sql = yield* SqlClient.SqlClient
  const { canonicalText, columns, write } = makeCodec(table)
  const names = ["id", ...columns.map(({ name }) => `"${name}"`)].join()
  const values = ["id", ...columns.map(({ field, type }) => `("item"->>'${field}')::${type}`)].join()
  const insertFrom = sql.literal(`INSERT INTO "${table.name}" (${names}) OVERRIDING SYSTEM VALUE SELECT ${values} FROM`)
  const sequence = sql.literal(`(SELECT pg_get_serial_sequence('"${table.name}"', 'id')::regclass)`)
  /**
   * The column of `idempotency_keys` that has the id of the created item, whichever table the item is in. It has the
   * name of the first resource, from when there was only one.
   */
  const createdId = sql.literal("pet_id")

  const encode = ({ claim, item }: Create): Schema.Json =>
    claim === undefined ? [write(item)] : [write(item), claim.owner, claim.key, claim.hash]

  // Assigns ids before the INSERT: RETURNING has no fixed order, so its ids could not be matched with the items. As a
  // subselect, `sequence` is looked up once per statement, not once per row.
  const withCreates = (creates: ReadonlyArray<Create>) =>
    sql`
      WITH creates AS MATERIALIZED (
        SELECT nextval(${sequence}) AS id, index, element->0 AS "item",
          element->>1 AS owner, element->>2 AS key, decode(element->>3, 'hex') AS request
        FROM jsonb_array_elements(${JSON.stringify(creates.map(encode))}::text::jsonb)
          WITH ORDINALITY AS elements (element, index)
      )`

  const insertItems = (creates: ReadonlyArray<Create>) =>
    sql<CreatedRow>`
      ${withCreates(creates)}, inserted AS (${insertFrom} creates)
      SELECT id FROM creates ORDER BY index`

  /**
   * For an idempotency key that is stored and has not expired, DO UPDATE keeps all values, but makes RETURNING include
   * the stored row. A separate SELECT could miss a row that another process commits while the statement runs. A create
   * that finds such a row leaves its own new id unused.
   */
  const claimAndInsert = (creates: ReadonlyArray<Create>) =>
    Effect.flatMap(Clock.currentTimeMillis, (nowMs) => {
      // Compare with this process's clock, not PostgreSQL's, because `expires_at` is also from a process's clock.
      const expired = sql`existing.expires_at <= ${new Date(nowMs)}`
      return sql<CreatedRow>`
        ${withCreates(creates)}, claimed AS (
          INSERT INTO idempotency_keys AS existing (owner, key, request, ${createdId}, expires_at)
          SELECT owner, key, request, id, ${new Date(nowMs + Duration.toMillis(idempotencyKeyLifetime))}::timestamptz
          FROM creates WHERE key IS NOT NULL ORDER BY owner COLLATE "C", key COLLATE "C"
          ON CONFLICT (owner, key) DO UPDATE SET
            request = CASE WHEN ${expired} THEN excluded.request ELSE existing.request END,
            ${createdId} = CASE WHEN ${expired} THEN excluded.${createdId} ELSE existing.${createdId} END,
            expires_at = CASE WHEN ${expired} THEN excluded.expires_at ELSE existing.expires_at END
          RETURNING owner, key, request, ${createdId} AS claimed_id
        ), decided AS MATERIALIZED (
          SELECT creates.*, claimed.request AS claimed_request, claimed_id
          FROM creates LEFT JOIN claimed ON claimed.owner = creates.owner AND claimed.key = creates.key
        ), inserted AS (${insertFrom} decided WHERE key IS NULL OR claimed_id = id)
        SELECT COALESCE(claimed_id, id) AS id, claimed_id <> id AS "isReplay",
          encode(NULLIF(claimed_request, request), 'hex') AS "otherHash"
        FROM decided ORDER BY index`
    })

  /**
   * Of the creates of a batch with the same owner and idempotency key, runs only the first. Its row tells the item that
   * the key stands for. The others replay that item, or are rejected if their own item differs from it.
   */
  const run = (creates: ReadonlyArray<Create>) => {
    const keyOf = (create: Create) => create.claim === undefined ? create : `${create.claim.owner}\0${create.claim.key}`
    const groups = [...Map.groupBy(creates, keyOf).values()]
    const firsts = groups.flatMap((group) => group.slice(0, 1))
    const statement = firsts.some(({ claim }) => claim !== undefined) ? claimAndInsert(firsts) : insertItems(firsts)
    return Effect.map(statement, (rows) => {
      const outcomes = new Map<Create, Effect.Effect<Created<Item<New>>, Reused>>()
      for (const [index, group] of groups.entries()) {
        const [row, first] = [rows[index], firsts[index]]
        if (typeof row?.id !== "bigint") continue
        // `isReused` compares each create's hash with the one that the key stands for: the stored one if it differs
        // from that of `first`, else that of `first`. Without a key, both are undefined. If the hashes are equal, the
        // create's item equals the one that was inserted, so a replay returns its own item, and reads none.
        for (const create of group) {
          const isReused = create.claim?.hash !== (row.otherHash ?? first?.claim?.hash)
          const created = { item: { id: row.id, ...create.item }, isReplay: create !== first || row.isReplay === true }
          outcomes.set(create, isReused ? Effect.fail(table.keyReused) : Effect.succeed(created))
        }
      }
      return outcomes
    })
  }

  const createInBatch = yield* StatementBatcher.write({
    name: `${table.name}.create`,
    size: 250,
    errors: table.errors,
    run
  })

  return (item: New, idempotency?: Idempotency) => {
    const claim = idempotency && { ...idempotency, hash: hash("sha256", canonicalText(item)) }
    const created = createInBatch({ item, claim })
    return Effect.flatMap(created, (outcome = Effect.die(new Error("INSERT returned no id"))) => outcome)
  }
})
