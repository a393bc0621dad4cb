/** Where the animals are kept. */
import { Context, Effect, Layer, Option } from "effect"
import { SqlClient } from "effect/sql"
import type { NewPet, Pet, PetStatus } from "./api/Pets.ts"

export class PetRepository extends Context.Service<PetRepository, {
  /** At most `limit` animals, by ascending id; only those with `status`, if one is given. */
  list(options: {
    readonly limit: number
    readonly status?: PetStatus | undefined
  }): Effect.Effect<ReadonlyArray<Pet>>

  /** Adds an animal under an id that none had before. It is durable when the effect succeeds. */
  create(pet: NewPet): Effect.Effect<Pet>

  find(id: bigint): Effect.Effect<Option.Option<Pet>>
}>()("petstore/PetRepository") {
  /** On PostgreSQL, with the tables of `migrations/`. A fault of the database is a defect: callers cannot mend it. */
  static readonly layer = Layer.effect(
    PetRepository,
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const columns = sql.literal(`id, name, category_id AS "categoryId", status`)

      const list = Effect.fn("PetRepository.list")(function*(options: {
        readonly limit: number
        readonly status?: PetStatus | undefined
      }) {
        const rows = options.status === undefined
          ? yield* sql<Row>`SELECT ${columns} FROM pets ORDER BY id LIMIT ${options.limit}`
          : yield* sql<
            Row
          >`SELECT ${columns} FROM pets WHERE status = ${options.status} ORDER BY id LIMIT ${options.limit}`
        return rows.map(fromRow)
      }, Effect.orDie)

      const create = Effect.fn("PetRepository.create")(function*(pet: NewPet) {
        const [row] = yield* sql<{ readonly id: bigint }>`
          INSERT INTO pets (name, category_id, status)
          VALUES (${pet.name}, ${pet.categoryId}, ${pet.status ?? null})
          RETURNING id`
        return row === undefined ? yield* Effect.die("INSERT returned no row") : { id: row.id, ...pet }
      }, Effect.orDie)

      const find = Effect.fn("PetRepository.find")(function*(id: bigint) {
        const [row] = yield* sql<Row>`SELECT ${columns} FROM pets WHERE id = ${id}`
        return Option.map(Option.fromUndefinedOr(row), fromRow)
      }, Effect.orDie)

      return PetRepository.of({ list, create, find })
    })
  )

  /** In this process's memory, for tests. */
  static readonly layerMemory = Layer.sync(PetRepository, () => {
    const pets = new Map<bigint, Pet>()
    let lastId = 0n
    return PetRepository.of({
      list: ({ limit, status }) =>
        Effect.sync(() =>
          pets.values().filter((pet) => status === undefined || pet.status === status).take(limit).toArray()
        ),
      create: (newPet) =>
        Effect.sync(() => {
          const pet = { id: ++lastId, ...newPet }
          pets.set(pet.id, pet)
          return pet
        }),
      find: (id) => Effect.sync(() => Option.fromUndefinedOr(pets.get(id)))
    })
  })
}

type Row = Omit<Pet, "status"> & { readonly status: PetStatus | null }

/** A status that was not given is absent, not null (DESIGN: absent stays absent). */
const fromRow = ({ id, name, categoryId, status }: Row): Pet =>
  status === null ? { id, name, categoryId } : { id, name, categoryId, status }
