/**
 * Creates pets on PostgreSQL, with and without idempotency keys.
 *
 * - Concurrent creates share one statement and one commit, which stores all of them or none.
 * - One statement runs at a time, so the pets of this process become visible by ascending id.
 * - `ON CONFLICT` claims the keys. It sees keys that other processes commit meanwhile, so one statement decides between
 *   a create, a replay and a conflict.
 * - All statements claim keys in the same order, so they cannot deadlock.
 */
import { Clock, Duration, Effect } from "effect"
import { SqlClient } from "effect/sql"
import { hash } from "node:crypto"
import type { IdempotencyKeyReused, ServiceUnavailable } from "../api/Errors.ts"
import type { NewPet } from "../api/Pets.ts"
import * as Outage from "../database/Outage.ts"
import * as RequestBatcher from "../database/RequestBatcher.ts"
import { canonicalText, type Created, type Idempotency, keyLifetime, keyReused } from "./PetRepository.ts"

/** An object for each call, because the batcher merges equal items. */
interface Create {
  readonly pet: NewPet
  /** `request` is the SHA-256 of the pet's fields. */
  readonly claim: (Idempotency & { readonly request: string }) | undefined
}

interface CreatedRow {
  /** The id of the new pet, or of the pet that the key already created. */
  readonly id: unknown
  /** Whether the key was in use before. */
  readonly isUsed?: unknown
  /** The request of the key, if it is another one. */
  readonly otherRequest?: unknown
}

const noId = Effect.die(new Error("INSERT returned no id"))

const encode = (creates: ReadonlyArray<Create>): string =>
  JSON.stringify(
    creates.map(({ claim, pet: { categoryId, name, status } }) =>
      [name, String(categoryId), status].concat(claim === undefined ? [] : [claim.owner, claim.key, claim.request])
    )
  )

export const make = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  // Assign ids before the INSERT, because RETURNING does not guarantee the order of rows. The subselect resolves the
  // sequence's name once per statement instead of once per row.
  const asked = (creates: ReadonlyArray<Create>) =>
    sql`SELECT nextval((SELECT pg_get_serial_sequence('pets', 'id')::regclass)) AS id, pet, nth
        FROM jsonb_array_elements(${encode(creates)}::text::jsonb) WITH ORDINALITY AS asked (pet, nth)`
  const insertInto = sql.literal("INSERT INTO pets (id, name, category_id, status) OVERRIDING SYSTEM VALUE")

  const insertPets = (creates: ReadonlyArray<Create>) =>
    sql<CreatedRow>`
      WITH added AS MATERIALIZED (${asked(creates)}), inserted AS (
        ${insertInto} SELECT id, pet->>0, (pet->>1)::bigint, pet->>2 FROM added
      )
      SELECT id FROM added ORDER BY nth`

  /**
   * Inserts pets, at most one for each idempotency key. If a key exists, a no-op update makes RETURNING include its
   * row. A separate SELECT could miss a key that another process commits meanwhile. The cost: each replay uses up one
   * id.
   */
  const claimAndInsert = (creates: ReadonlyArray<Create>) =>
    Effect.flatMap(Clock.currentTimeMillis, (nowMs) => {
      // The process that claimed the key set its expiry, so it is compared with a process's clock, not the server's.
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

  /** Runs a statement for the first create of each key. Further creates with the key replay it, or are rejected. */
  const run = (creates: ReadonlyArray<Create>) => {
    const keyOf = (create: Create) => create.claim === undefined ? create : `${create.claim.owner}\0${create.claim.key}`
    const groups = [...Map.groupBy(creates, keyOf).values()]
    const firsts = groups.flatMap((group) => group.slice(0, 1))
    const statement = firsts.some(({ claim }) => claim !== undefined) ? claimAndInsert(firsts) : insertPets(firsts)
    return Effect.map(Outage.toServiceUnavailable(Outage.leaveReadOnlyServer(statement, sql)), (rows) => {
      const outcomes = new Map<Create, Effect.Effect<Created, IdempotencyKeyReused>>()
      for (const [index, group] of groups.entries()) {
        const [row, first] = [rows[index], firsts[index]]
        if (typeof row?.id !== "bigint") continue
        for (const create of group) {
          const isReused = create.claim?.request !== (row.otherRequest ?? first?.claim?.request)
          const created = { pet: { id: row.id, ...create.pet }, isReplay: create !== first || row.isUsed === true }
          outcomes.set(create, isReused ? Effect.fail(keyReused) : Effect.succeed(created))
        }
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
    return Effect.flatMap(createInBatch({ pet, claim }), (outcome = noId) => outcome)
  }
})
