/**
 * Creates pets on PostgreSQL, with and without idempotency keys.
 *
 * - Concurrent creates share one statement and one commit. A statement stores all its pets and their keys, or nothing.
 * - One such statement runs at a time, so that the pets of this process become visible in ascending order of ids.
 * - A statement claims a key with `ON CONFLICT`, which also sees the keys that other processes commit meanwhile. So one
 *   statement decides between a create, a replay and a conflict, without a transaction of several statements.
 * - Statements claim their keys in the same order, so that two processes cannot wait for each other.
 */
import { Clock, Duration, Effect } from "effect"
import { SqlClient } from "effect/sql"
import { hash } from "node:crypto"
import type { IdempotencyKeyReused, ServiceUnavailable } from "../api/Errors.ts"
import type { NewPet } from "../api/Pets.ts"
import * as Outage from "../database/Outage.ts"
import * as RequestBatcher from "../database/RequestBatcher.ts"
import { canonicalText, type Created, type Idempotency, keyLifetime, keyReused } from "./PetRepository.ts"

/** One call of `create`. Each is an object of its own, so that a batch does not merge the creates of equal pets. */
interface Create {
  readonly pet: NewPet
  /** The idempotency key, with the SHA-256 of the pet's fields. */
  readonly claim: (Idempotency & { readonly request: string }) | undefined
}

/** A row of the result of a statement, one for each of its creates, in the same order. */
interface CreatedRow {
  /** The id of the new pet, or of the pet that the key was used for. */
  readonly id: unknown
  /** `true` if the key was in use before the statement. */
  readonly isUsed?: unknown
  /** The request for which the key is in use, if it is another one. */
  readonly otherRequest?: unknown
}

/** The outcome of a create. It is a replay if an earlier create with the same key inserted the pet. */
type Outcome = { readonly id: bigint; readonly isReplay: boolean } | "reused"

/** Encodes creates as the JSON parameter of the statements. */
const encode = (creates: ReadonlyArray<Create>): string =>
  JSON.stringify(creates.map(({ claim, pet: { categoryId, name, status } }) =>
    claim === undefined
      ? [name, String(categoryId), status]
      : [name, String(categoryId), status, claim.owner, claim.key, claim.request]
  ))

/** Makes the function that creates a pet. */
export const make = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  // A CTE assigns the ids before the INSERT, because the rows that an INSERT returns have no guaranteed order. The
  // subselect finds the sequence once per statement, which saves the database a sixth of the cost of a create.
  const asked = (creates: ReadonlyArray<Create>) =>
    sql`SELECT nextval((SELECT pg_get_serial_sequence('pets', 'id')::regclass)) AS id, pet, nth
        FROM jsonb_array_elements(${encode(creates)}::text::jsonb) WITH ORDINALITY AS asked (pet, nth)`
  const insertInto = sql.literal("INSERT INTO pets (id, name, category_id, status) OVERRIDING SYSTEM VALUE")

  /** Inserts pets without keys. */
  const insertPets = (creates: ReadonlyArray<Create>) =>
    sql<CreatedRow>`
      WITH added AS MATERIALIZED (${asked(creates)}), inserted AS (
        ${insertInto} SELECT id, pet->>0, (pet->>1)::bigint, pet->>2 FROM added
      )
      SELECT id FROM added ORDER BY nth`

  /**
   * Inserts pets with and without keys. No two of the creates may have the same key.
   *
   * A key in use is updated to its own values, because only changed rows are returned. A plain SELECT would miss a key
   * that another process commits while this statement runs. It would also depend on a cached plan, which can be a scan
   * of the whole table. Each replay therefore takes an id from the sequence and wastes it.
   */
  const claimAndInsert = (creates: ReadonlyArray<Create>) =>
    Effect.flatMap(Clock.currentTimeMillis, (nowMs) => {
      // The server's clock may differ, so the process that claims a key decides whether it is expired.
      const expired = sql`existing.expires_at <= ${new Date(nowMs)}`
      return sql<CreatedRow>`
        WITH added AS MATERIALIZED (
          SELECT id, pet, nth, pet->>3 AS owner, pet->>4 AS key, decode(pet->>5, 'hex') AS request
          FROM (${asked(creates)}) AS asked
        ), claimed AS (
          INSERT INTO idempotency_keys AS existing (owner, key, request, pet_id, expires_at)
          SELECT owner, key, request, id, ${new Date(nowMs + Duration.toMillis(keyLifetime))}::timestamptz
          FROM added WHERE key IS NOT NULL ORDER BY owner COLLATE "C", key COLLATE "C"
          ON CONFLICT (owner, key) DO UPDATE SET
            request = CASE WHEN ${expired} THEN excluded.request ELSE existing.request END,
            pet_id = CASE WHEN ${expired} THEN excluded.pet_id ELSE existing.pet_id END,
            expires_at = CASE WHEN ${expired} THEN excluded.expires_at ELSE existing.expires_at END
          RETURNING owner, key, request, pet_id
        ), decided AS MATERIALIZED (
          SELECT added.*, claimed.request AS claimed_request, claimed.pet_id
          FROM added LEFT JOIN claimed ON claimed.owner = added.owner AND claimed.key = added.key
        ), inserted AS (
          ${insertInto} SELECT id, pet->>0, (pet->>1)::bigint, pet->>2 FROM decided WHERE key IS NULL OR pet_id = id
        )
        SELECT COALESCE(pet_id, id) AS id, pet_id <> id AS "isUsed",
          encode(NULLIF(claimed_request, request), 'hex') AS "otherRequest"
        FROM decided ORDER BY nth`
    })

  /** Runs one statement for the first create of each key. The others with the key get its pet, or are rejected. */
  const run = (creates: ReadonlyArray<Create>) => {
    // PostgreSQL's texts have no U+0000, so it separates the two without ambiguity.
    const keyOf = (create: Create) => create.claim === undefined ? create : `${create.claim.owner}\0${create.claim.key}`
    const firsts = new Map<Create | string, Create>()
    for (const create of creates) if (!firsts.has(keyOf(create))) firsts.set(keyOf(create), create)
    const inserts = [...firsts.values()]
    const statement = inserts.some(({ claim }) => claim !== undefined) ? claimAndInsert(inserts) : insertPets(inserts)
    return Effect.map(Outage.toServiceUnavailable(Outage.leaveReadOnlyServer(statement, sql)), (rows) => {
      const rowsByFirst = new Map(inserts.map((create, index) => [create, rows[index]]))
      const outcomes = new Map<Create, Outcome>()
      for (const create of creates) {
        const first = firsts.get(keyOf(create)) ?? create
        const row = rowsByFirst.get(first)
        if (typeof row?.id !== "bigint") continue
        const isReplay = create !== first || row.isUsed === true
        const isReused = create.claim?.request !== (row.otherRequest ?? first.claim?.request)
        outcomes.set(create, isReused ? "reused" : { id: row.id, isReplay })
      }
      return outcomes
    })
  }

  const createInBatch = yield* RequestBatcher.make({
    name: "PetRepository.create",
    concurrency: 1,
    size: 250,
    timeout: RequestBatcher.callTimeout,
    run
  })

  return (
    pet: NewPet,
    idempotency?: Idempotency
  ): Effect.Effect<Created, IdempotencyKeyReused | ServiceUnavailable> => {
    const claim = idempotency && { ...idempotency, request: hash("sha256", canonicalText(pet)) }
    return Effect.flatMap(createInBatch({ pet, claim }), (outcome) => {
      if (outcome === undefined) return Effect.die(new Error("INSERT returned no id"))
      if (outcome === "reused") return Effect.fail(keyReused)
      return Effect.succeed({ pet: { id: outcome.id, ...pet }, isReplay: outcome.isReplay })
    })
  }
})
