/** Where the animals are kept. */
import { Clock, Context, Duration, Effect, Layer, Option } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { createHash } from "node:crypto"
import { IdempotencyKeyReused } from "./api/Errors.ts"
import type { NewPet, Pet, PetStatus } from "./api/Pets.ts"
import * as Expiry from "./Expiry.ts"

/** Which animals, and how many of them at most. */
export interface Selection {
  readonly limit: number
  readonly status?: PetStatus | undefined
  /** Only those with a greater id. */
  readonly after?: bigint | undefined
}

/** What names an addition, so that it is done once however often it is asked for: a key, among those of its owner. */
export interface Idempotency {
  readonly owner: string
  readonly key: string
}

/** How long an addition is known by its name. */
const rememberedFor = Duration.hours(24)

export class PetRepository extends Context.Service<PetRepository, {
  /** Animals by ascending id. */
  list(selection: Selection): Effect.Effect<ReadonlyArray<Pet>>

  /**
   * Adds an animal under an id that none had before. It is durable when the effect succeeds. Under a name that came within
   * the last 24 hours it adds nothing, and answers as it did then; it fails if that was about another animal.
   */
  create(pet: NewPet, idempotency?: Idempotency): Effect.Effect<Pet, IdempotencyKeyReused>

  find(id: bigint): Effect.Effect<Option.Option<Pet>>
}>()("petstore/PetRepository") {
  /** On PostgreSQL, with the tables of `migrations/`. A fault of the database is a defect: callers cannot mend it. */
  static readonly layer = Layer.effect(
    PetRepository,
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const columns = sql.literal(`id, name, category_id AS "categoryId", status`)

      const list = Effect.fn("PetRepository.list")(function*({ after, limit, status }: Selection) {
        const conditions = [
          ...status === undefined ? [] : [sql`status = ${status}`],
          ...after === undefined ? [] : [sql`id > ${after}`]
        ]
        const where = conditions.length === 0 ? sql.literal("") : sql`WHERE ${sql.and(conditions)}`
        const rows = yield* sql<Row>`SELECT ${columns} FROM pets ${where} ORDER BY id LIMIT ${limit}`
        return rows.map(fromRow)
      }, Effect.orDie)

      const create = Effect.fn("PetRepository.create")(function*(pet: NewPet, idempotency?: Idempotency) {
        if (idempotency !== undefined) return { id: yield* createOnce(pet, idempotency), ...pet }
        const [row] = yield* sql<{ readonly id: bigint }>`
          INSERT INTO pets (name, category_id, status)
          VALUES (${pet.name}, ${pet.categoryId}, ${pet.status ?? null})
          RETURNING id`
        return row === undefined ? yield* Effect.die("INSERT returned no row") : { id: row.id, ...pet }
      }, Effect.catchTag("SqlError", Effect.die))

      /** The id that the animal got, now or when it was first asked for. */
      const createOnce = Effect.fnUntraced(function*(
        pet: NewPet,
        { key, owner }: Idempotency
      ): Effect.fn.Return<bigint, IdempotencyKeyReused | SqlError.SqlError> {
        const now = yield* Clock.currentTimeMillis
        const request = fingerprint(pet)
        const expires = new Date(now + Duration.toMillis(rememberedFor))
        // One statement, so that the animal and its name are there together or not at all. Of those that come at the
        // same time one claims the name; the others wait for it, find that it is taken, and claim nothing.
        const [created] = yield* sql<{ readonly id: bigint }>`
          WITH claimed AS (
            INSERT INTO idempotency_keys AS known (owner, key, request, pet_id, expires_at)
            VALUES (${owner}, ${key}, ${request}, nextval(pg_get_serial_sequence('pets', 'id')), ${expires})
            ON CONFLICT (owner, key) DO UPDATE
              SET request = excluded.request, pet_id = excluded.pet_id, expires_at = excluded.expires_at
              WHERE known.expires_at <= ${new Date(now)}
            RETURNING pet_id
          )
          INSERT INTO pets (id, name, category_id, status)
          SELECT pet_id, ${pet.name}, ${pet.categoryId}::bigint, ${pet.status ?? null}::text FROM claimed
          RETURNING id`
        if (created !== undefined) return created.id
        const [known] = yield* sql<{ readonly id: bigint; readonly same: boolean }>`
          SELECT pet_id AS id, request = ${request} AS same
          FROM idempotency_keys WHERE owner = ${owner} AND key = ${key}`
        // Expired and removed in this moment.
        if (known === undefined) return yield* createOnce(pet, { key, owner })
        return known.same ? known.id : yield* reused
      })

      const find = Effect.fn("PetRepository.find")(function*(id: bigint) {
        const [row] = yield* sql<Row>`SELECT ${columns} FROM pets WHERE id = ${id}`
        return Option.map(Option.fromUndefinedOr(row), fromRow)
      }, Effect.orDie)

      yield* Expiry.sweep({
        table: "idempotency_keys",
        column: "expires_at",
        warning: "Expired idempotency keys cannot be removed"
      })

      return PetRepository.of({ list, create, find })
    })
  )

  /** In this process's memory, for tests. */
  static readonly layerMemory = Layer.sync(PetRepository, () => {
    const pets = new Map<bigint, Pet>()
    const names = new Map<string, { readonly request: string; readonly pet: Pet; readonly expires: number }>()
    let lastId = 0n
    const add = (newPet: NewPet): Pet => {
      const pet = { id: ++lastId, ...newPet }
      pets.set(pet.id, pet)
      return pet
    }
    return PetRepository.of({
      list: ({ after, limit, status }) =>
        Effect.sync(() =>
          pets.values()
            .filter((pet) => (status === undefined || pet.status === status) && (after === undefined || pet.id > after))
            .take(limit)
            .toArray()
        ),
      create: (newPet, idempotency) =>
        Effect.flatMap(Clock.currentTimeMillis, (now) => {
          if (idempotency === undefined) return Effect.succeed(add(newPet))
          const name = JSON.stringify([idempotency.owner, idempotency.key])
          const request = fingerprint(newPet).toString("hex")
          const known = names.get(name)
          if (known !== undefined && now < known.expires) {
            return known.request === request ? Effect.succeed(known.pet) : reused
          }
          const pet = add(newPet)
          names.set(name, { request, pet, expires: now + Duration.toMillis(rememberedFor) })
          return Effect.succeed(pet)
        }),
      find: (id) => Effect.sync(() => Option.fromUndefinedOr(pets.get(id)))
    })
  })
}

const reused = new IdempotencyKeyReused({ message: "The Idempotency-Key was used for another animal." })

/** Two animals to be added are the same if this is (SHA-256). */
const fingerprint = ({ categoryId, name, status }: NewPet): Buffer =>
  createHash("sha256").update(JSON.stringify([name, String(categoryId), status])).digest()

type Row = Omit<Pet, "status"> & { readonly status: PetStatus | null }

/** A status that was not given is absent, not null (DESIGN: absent stays absent). */
const fromRow = ({ id, name, categoryId, status }: Row): Pet =>
  status === null ? { id, name, categoryId } : { id, name, categoryId, status }
