/**
 * Creates pets on PostgreSQL, with and without idempotency keys.
 *
 * - Concurrent creates share one statement and one commit. A statement stores all its pets and their keys, or nothing.
 * - One such statement runs at a time, so that the pets of this process become visible in ascending order of ids.
 * - A statement claims a key with `ON CONFLICT`, which also sees the keys that other processes commit meanwhile. So one
 *   statement decides between a create, a replay and a conflict, without a transaction of several statements.
 * - Statements claim their keys in the same order, so that two processes cannot wait for each other.
 */
import { Clock, Duration, Effect, Semaphore } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { hash } from "node:crypto"
import type { NewPet } from "../api/Pets.ts"
import * as Outage from "../database/Outage.ts"
import * as RequestBatcher from "../database/RequestBatcher.ts"
import { canonicalText, type Idempotency, keyLifetime, keyReused, markReplayed } from "./Idempotency.ts"
import type { PetStore } from "./PetStore.ts"

/** The maximum number of creates in a statement. */
const maxCreatesPerStatement = 250

/**
 * The maximum time that a shared statement waits for a lock. Only another transaction that changes one of its keys and
 * stays open makes it wait so long. The keys are then claimed one by one, so that only the locked key waits longer.
 */
const maxLockWait = Duration.millis(500)

/** The maximum number of keys that are claimed one by one at once. Each holds a connection while it waits. */
const maxSingleClaims = 4

/** One call of `create`. Each is an object of its own, so that a batch does not merge the creates of equal pets. */
interface Create {
  readonly pet: NewPet
  readonly idempotency: Idempotency | undefined
}

/** The creates with one idempotency key, or one create without a key. The first create is the one to insert. */
interface Insert {
  readonly pet: NewPet
  readonly claim: (Idempotency & { readonly requestHash: string }) | undefined
  readonly creates: Array<Create>
}

/** The pet of a create. It is a replay if an earlier create with the same key inserted the pet. */
interface Stored {
  readonly id: bigint
  readonly isReplay: boolean
}

/**
 * The outcome of a create: its pet, or `"reused"` if its key is in use for another pet. `"locked"` means that nothing
 * was done, because a key of the batch is locked.
 */
type Outcome = Stored | "reused" | "locked"

/** Returns the SHA-256 of a pet's fields, in hexadecimal. Requests for equal pets have equal fingerprints. */
const fingerprint = (pet: NewPet): string => hash("sha256", canonicalText(pet))

const hasClaim = ({ claim }: Insert): boolean => claim !== undefined

/** Groups creates by idempotency key. The inserts have the order of the first create of each. */
const toInserts = (creates: ReadonlyArray<Create>): ReadonlyArray<Insert> => {
  const inserts: Array<Insert> = []
  const byKey = new Map<string, Insert>()
  for (const create of creates) {
    const { idempotency, pet } = create
    // PostgreSQL's texts have no U+0000, so it separates the two without ambiguity.
    const claimId = idempotency && `${idempotency.owner}\0${idempotency.key}`
    const first = claimId === undefined ? undefined : byKey.get(claimId)
    if (first !== undefined) {
      first.creates.push(create)
      continue
    }
    const insert = { pet, claim: idempotency && { ...idempotency, requestHash: fingerprint(pet) }, creates: [create] }
    inserts.push(insert)
    if (claimId !== undefined) byKey.set(claimId, insert)
  }
  return inserts
}

/** Encodes inserts as the JSON parameter of the statements. */
const encodeInserts = (inserts: ReadonlyArray<Insert>): string =>
  JSON.stringify(inserts.map(({ claim, pet: { categoryId, name, status } }) =>
    claim === undefined
      ? [name, String(categoryId), status]
      : [name, String(categoryId), status, claim.owner, claim.key, claim.requestHash]
  ))

/** A row of the result of a statement, one for each insert, in the same order. */
interface InsertedRow {
  /** The id of the new pet, or of the pet that the key was used for. */
  readonly id: bigint
  /** The fingerprint for which the key is in use, if it is not the one of the insert. */
  readonly otherHash?: string | null
  /** Whether the key was in use before the statement. It is `null` without a key. */
  readonly isUsed?: boolean | null
}

/** Returns the outcome of each create from the rows of its inserts. */
const toOutcomes = (inserts: ReadonlyArray<Insert>, rows: ReadonlyArray<InsertedRow>): Map<Create, Outcome> => {
  const outcomes = new Map<Create, Outcome>()
  for (const [index, { claim, creates }] of inserts.entries()) {
    const row = rows[index]
    if (row === undefined) continue
    const requestHash = row.otherHash ?? claim?.requestHash
    for (const [position, create] of creates.entries()) {
      const ownHash = position === 0 ? claim?.requestHash : fingerprint(create.pet)
      const isReplay = position > 0 || row.isUsed === true
      outcomes.set(create, ownHash === requestHash ? { id: row.id, isReplay } : "reused")
    }
  }
  return outcomes
}

/** Whether a statement failed because an id is taken. The database reports it as a unique violation. */
const isIdTaken = (error: SqlError.SqlError): boolean => error.reason._tag === "UniqueViolation"

/** Whether a statement failed because another transaction holds a lock. Nothing of the statement was done. */
const isLocked = (error: SqlError.SqlError): boolean =>
  error.reason._tag === "LockTimeoutError" || error.reason._tag === "DeadlockError"

/** Makes the function that creates a pet. It needs the tables of `migrations/`. */
export const make = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  // The subselect finds the sequence once per statement instead of once per pet. This saves the database a sixth of the
  // cost of a create.
  const nextId = sql.literal("nextval((SELECT pg_get_serial_sequence('pets', 'id')::regclass))")

  /** Inserts pets without keys. */
  const insertPets = (inserts: ReadonlyArray<Insert>) =>
    // A subquery assigns the ids before the INSERT, because the rows that an INSERT returns have no guaranteed order.
    sql<InsertedRow>`
      WITH added AS MATERIALIZED (
        SELECT ${nextId} AS id, pet, nth
        FROM jsonb_array_elements(${encodeInserts(inserts)}::text::jsonb) WITH ORDINALITY AS asked (pet, nth)
      ), inserted AS (
        INSERT INTO pets (id, name, category_id, status) SELECT id, pet->>0, (pet->>1)::bigint, pet->>2 FROM added
      )
      SELECT id FROM added ORDER BY nth`

  const untilLockTimeout = sql.literal(
    `(SELECT set_config('lock_timeout', '${Duration.toMillis(maxLockWait)}', true))`
  )
  const untilStatementTimeout = sql.literal("(SELECT)")

  /**
   * Inserts pets with and without keys. `limit` is the CTE that limits the wait for locks.
   *
   * A key in use is updated to its own values, because only changed rows are returned. A plain SELECT would miss a key
   * that another process commits while this statement runs. It would also depend on a cached plan, which can be a scan
   * of the whole table. Each replay therefore takes an id from the sequence and wastes it.
   */
  const claimAndInsert = (inserts: ReadonlyArray<Insert>, limit: typeof untilLockTimeout) =>
    Effect.flatMap(Clock.currentTimeMillis, (nowMs) => {
      const values = encodeInserts(inserts)
      // The server's clock may differ, so the process that claims a key decides whether it is expired.
      const expired = sql`existing.expires_at <= ${new Date(nowMs)}`
      return sql<InsertedRow>`
        WITH lock_wait AS MATERIALIZED ${limit}, added AS MATERIALIZED (
          SELECT ${nextId} AS id, pet, nth, pet->>3 AS owner, pet->>4 AS key, decode(pet->>5, 'hex') AS request
          FROM lock_wait, jsonb_array_elements(${values}::text::jsonb) WITH ORDINALITY AS asked (pet, nth)
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
          INSERT INTO pets (id, name, category_id, status)
          SELECT id, pet->>0, (pet->>1)::bigint, pet->>2 FROM decided
          WHERE key IS NULL OR (pet_id = id AND claimed_request = request)
        )
        SELECT COALESCE(pet_id, id) AS id, pet_id <> id AS "isUsed",
          encode(NULLIF(claimed_request, request), 'hex') AS "otherHash"
        FROM decided ORDER BY nth`
    })

  /** Moves the sequence past the ids that an operator's INSERT has taken. */
  const skipTakenIds = Effect.asVoid(sql`
    SELECT setval(ids, (
      SELECT id FROM pets AS taken
      WHERE id >= last AND NOT EXISTS (SELECT FROM pets WHERE id = taken.id + 1)
      ORDER BY id LIMIT 1
    ))
    FROM (SELECT pg_get_serial_sequence('pets', 'id')::regclass AS ids) AS sequence,
    LATERAL (SELECT pg_sequence_last_value(ids) AS last) AS value
    WHERE EXISTS (SELECT FROM pets WHERE id = last)`)
  /** Retries an INSERT up to three times while an id is taken. Before each retry the sequence skips the taken ids. */
  const retryTakenIds = <A>(insert: Effect.Effect<A, SqlError.SqlError>): Effect.Effect<A, SqlError.SqlError> =>
    insert.pipe(
      Effect.tapError((error) => isIdTaken(error) ? skipTakenIds : Effect.void),
      Effect.retry({ while: isIdTaken, times: 3 })
    )

  /** Runs a statement for inserts and returns the outcomes of their creates. */
  const run = (
    inserts: ReadonlyArray<Insert>,
    statement: (inserts: ReadonlyArray<Insert>) => Effect.Effect<ReadonlyArray<InsertedRow>, SqlError.SqlError>
  ) =>
    Outage.leaveReadOnlyServer(retryTakenIds(statement(inserts)), sql).pipe(
      Effect.map((rows) => toOutcomes(inserts, rows))
    )

  const createInBatch = yield* RequestBatcher.make({
    concurrency: 1,
    size: maxCreatesPerStatement,
    timeout: RequestBatcher.callTimeout,
    run: (creates: ReadonlyArray<Create>) => {
      const inserts = toInserts(creates)
      if (!inserts.some(hasClaim)) return run(inserts, insertPets)
      return run(inserts, (all) => claimAndInsert(all, untilLockTimeout)).pipe(
        Effect.catchIf(isLocked, () => {
          const withoutKeys = inserts.filter((insert) => !hasClaim(insert))
          return Effect.map(run(withoutKeys, insertPets), (outcomes) => {
            for (const create of creates) if (create.idempotency !== undefined) outcomes.set(create, "locked")
            return outcomes
          })
        })
      )
    }
  })

  const singleClaims = yield* Semaphore.make(maxSingleClaims)
  /** Runs one create with a key by itself. It waits for locks until the statement timeout. */
  const createAlone = (create: Create) =>
    run(toInserts([create]), (inserts) => claimAndInsert(inserts, untilStatementTimeout)).pipe(
      singleClaims.withPermit,
      Effect.timeout(Duration.subtract(RequestBatcher.callTimeout, maxLockWait)),
      Effect.orDie,
      Effect.map((outcomes) => outcomes.get(create))
    )

  const create: PetStore["create"] = (pet, idempotency) => {
    const call = { pet, idempotency }
    const respond = (outcome: Outcome | undefined) =>
      outcome === "reused"
        ? Effect.fail(keyReused)
        : outcome === undefined || outcome === "locked"
        ? Effect.die(new Error("INSERT returned no id"))
        : Effect.succeed(outcome.isReplay ? markReplayed({ id: outcome.id, ...pet }) : { id: outcome.id, ...pet })
    return Effect.flatMap(
      createInBatch(call),
      (outcome) => outcome === "locked" ? Effect.flatMap(createAlone(call), respond) : respond(outcome)
    )
  }
  return create
})
