/**
 * Creates pets on PostgreSQL. Up to 250 concurrent creates share one statement and its commit. Each process runs one
 * INSERT at a time, so its pets become visible in ascending order of ids, except those of an INSERT that failed because
 * its connection was lost or its deadline passed: the server can commit it later. All statements insert idempotency keys
 * in the same order, so statements of several processes cannot deadlock.
 *
 * A create within a transaction of its caller is an exception to both: its pet becomes visible, perhaps after pets with
 * higher ids, when that transaction commits, and it can deadlock with another transaction of several creates.
 */
import { Clock, Duration, Effect, type Schema } from "effect"
import { SqlClient } from "effect/sql"
import { hash } from "node:crypto"
import type { IdempotencyKeyReused } from "../api/Errors.ts"
import type { CreatedPet, NewPet } from "../api/Pets.ts"
import * as StatementBatcher from "../database/StatementBatcher.ts"
import { insertedColumns, insertedValues } from "./PetColumns.ts"
import { canonicalText, type Idempotency, idempotencyKeyLifetime, keyReused } from "./PetRepository.ts"

/** The batcher merges calls that pass the same object, so each call must pass a new one. */
interface Create {
  readonly pet: NewPet
  readonly claim: (Idempotency & { readonly petHash: string }) | undefined
}

interface CreatedRow {
  readonly id: unknown
  readonly isReplay?: unknown
  /** The hash of the pet that the idempotency key created earlier, if that pet differs from the new one. */
  readonly otherHash?: unknown
}

const encode = ({ claim, pet }: Create): Schema.Json => {
  const json = { ...pet, categoryId: String(pet.categoryId) }
  return claim === undefined ? [json] : [json, claim.owner, claim.key, claim.petHash]
}

export const make = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  // Assigns ids before the INSERT: RETURNING has no fixed order, so its ids could not be matched with the pets. The
  // subselect looks up the sequence once per statement, not once per row.
  const withCreates = (creates: ReadonlyArray<Create>) =>
    sql`
      WITH creates AS MATERIALIZED (
        SELECT nextval((SELECT pg_get_serial_sequence('"pets"', 'id')::regclass)) AS id, index, item->0 AS "pet",
          item->>1 AS owner, item->>2 AS key, decode(item->>3, 'hex') AS request
        FROM jsonb_array_elements(${JSON.stringify(creates.map(encode))}::text::jsonb)
          WITH ORDINALITY AS elements (item, index)
      )`
  const insertFrom = sql.literal(
    `INSERT INTO "pets" (${insertedColumns}) OVERRIDING SYSTEM VALUE SELECT ${insertedValues} FROM`
  )

  const insertPets = (creates: ReadonlyArray<Create>) =>
    sql<CreatedRow>`
      ${withCreates(creates)}, inserted AS (${insertFrom} creates)
      SELECT id FROM creates ORDER BY index`

  /**
   * For an unexpired idempotency key, DO UPDATE changes nothing, but makes RETURNING include the stored row. A separate
   * SELECT could miss a row that another process commits while the statement runs. Each replay uses up one pet id.
   */
  const claimAndInsert = (creates: ReadonlyArray<Create>) =>
    Effect.flatMap(Clock.currentTimeMillis, (nowMs) => {
      // Compare with this process's clock, not PostgreSQL's, because `expires_at` is also from a process's clock.
      const expired = sql`existing.expires_at <= ${new Date(nowMs)}`
      return sql<CreatedRow>`
        ${withCreates(creates)}, claimed AS (
          INSERT INTO idempotency_keys AS existing (owner, key, request, pet_id, expires_at)
          SELECT owner, key, request, id, ${new Date(nowMs + Duration.toMillis(idempotencyKeyLifetime))}::timestamptz
          FROM creates WHERE key IS NOT NULL ORDER BY owner COLLATE "C", key COLLATE "C"
          ON CONFLICT (owner, key) DO UPDATE SET
            request = CASE WHEN ${expired} THEN excluded.request ELSE existing.request END,
            pet_id = CASE WHEN ${expired} THEN excluded.pet_id ELSE existing.pet_id END,
            expires_at = CASE WHEN ${expired} THEN excluded.expires_at ELSE existing.expires_at END
          RETURNING owner, key, request, pet_id
        ), decided AS MATERIALIZED (
          SELECT creates.*, claimed.request AS claimed_request, claimed.pet_id
          FROM creates LEFT JOIN claimed ON claimed.owner = creates.owner AND claimed.key = creates.key
        ), inserted AS (${insertFrom} decided WHERE key IS NULL OR pet_id = id)
        SELECT COALESCE(pet_id, id) AS id, pet_id <> id AS "isReplay",
          encode(NULLIF(claimed_request, request), 'hex') AS "otherHash"
        FROM decided ORDER BY index`
    })

  /** In a batch, runs only the first create of each idempotency key. Later ones replay its result, or are rejected. */
  const run = (creates: ReadonlyArray<Create>) => {
    const keyOf = (create: Create) => create.claim === undefined ? create : `${create.claim.owner}\0${create.claim.key}`
    const groups = [...Map.groupBy(creates, keyOf).values()]
    const firsts = groups.flatMap((group) => group.slice(0, 1))
    const statement = firsts.some(({ claim }) => claim !== undefined) ? claimAndInsert(firsts) : insertPets(firsts)
    return Effect.map(statement, (rows) => {
      const outcomes = new Map<Create, Effect.Effect<CreatedPet, IdempotencyKeyReused>>()
      for (const [index, group] of groups.entries()) {
        const [row, first] = [rows[index], firsts[index]]
        if (typeof row?.id !== "bigint") continue
        for (const create of group) {
          const isReused = create.claim?.petHash !== (row.otherHash ?? first?.claim?.petHash)
          const created = { pet: { id: row.id, ...create.pet }, isReplay: create !== first || row.isReplay === true }
          outcomes.set(create, isReused ? Effect.fail(keyReused) : Effect.succeed(created))
        }
      }
      return outcomes
    })
  }

  const createInBatch = yield* StatementBatcher.write({ name: "PetRepository.create", size: 250, run })

  return (pet: NewPet, idempotency?: Idempotency) => {
    const claim = idempotency && { ...idempotency, petHash: hash("sha256", canonicalText(pet)) }
    const created = createInBatch({ pet, claim })
    return Effect.flatMap(created, (outcome = Effect.die(new Error("INSERT returned no id"))) => outcome)
  }
})
