/**
 * Animals by id, remembered: one that is asked for again costs no round trip to the database. The service never changes an
 * animal; an operator may, in SQL, and `pets_changes` tells of it.
 */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import type { Pet } from "../api/Pets.ts"
import * as Expiry from "../Expiry.ts"
import * as Freshness from "../Freshness.ts"
import { forgetOldest } from "../Oldest.ts"

/** Some 40 MB, with names of usual length. */
const kept = 200_000
/** Animals with longer names are not kept: a bound on characters, and so on memory. */
const longestName = 100

export const make = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const pets = new Map<bigint, Pet>()
  let generation = 0
  /**
   * All changes that are known, and of which table and server: another may have come from a backup. Of which hour, too: who
   * did not ask for that long may have missed changes that were removed since.
   */
  let version: string | undefined

  const poll = Effect.gen(function*() {
    const [row] = yield* sql<{ readonly version: string }>`
      SELECT concat_ws(
        ' ',
        date_trunc('hour', now()),
        pg_postmaster_start_time(),
        'pets'::regclass::oid,
        md5(string_agg(transaction::text, ',' ORDER BY transaction))
      ) AS version
      FROM pets_changes`
    if (row?.version === version) return
    version = row?.version
    generation++
    pets.clear()
  })
  const isFresh = yield* Freshness.make(poll, "Changes of pets cannot be read")

  yield* Expiry.sweep({
    table: "pets_changes",
    column: "ends_at",
    warning: "Changes of pets cannot be removed"
  })

  return {
    /** The animal, as of a second ago at most. */
    get: (id: bigint): Pet | undefined => isFresh() ? pets.get(id) : undefined,
    /** Remembers what `find` finds, unless something changes meanwhile. */
    remember: Effect.fnUntraced(function*<E>(find: Effect.Effect<ReadonlyMap<bigint, Pet>, E>) {
      const before = generation
      const found = yield* find
      if (generation === before) {
        for (const [id, pet] of found) if (pet.name.length <= longestName) pets.set(id, pet)
        forgetOldest(pets, kept)
      }
      return found
    })
  }
})
