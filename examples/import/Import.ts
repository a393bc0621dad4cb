/**
 * A worker that creates any number of pets within the plan of its key, without a ban: on the Free plan, 1,000 a day. The
 * client waits for the end of each window, and all workers of one layer share its limits.
 */
import { Effect, Stream } from "effect"
import type { NewPet } from "petstore-client/api"
import { PetstoreClient } from "petstore-client/client"

/** A pet to create, with the id of your own record. */
export interface Row extends NewPet {
  readonly recordId: number
}

/**
 * Creates a pet for each row, and runs `onCreated` with its id, such as to store it beside the row. If the worker
 * restarts, run it with the rows that have no pet: the idempotency key keeps a row from a second pet for 24 hours.
 */
export const importPets = <E, R>(
  rows: Stream.Stream<Row, E, R>,
  onCreated: (recordId: number, petId: bigint) => Effect.Effect<void, E, R>
) =>
  rows.pipe(
    Stream.mapEffect(
      Effect.fnUntraced(function*({ recordId, ...pet }) {
        const petstore = yield* PetstoreClient
        // A call can wait for the limit of the day, which ends after at most 24 hours.
        const { id } = yield* petstore.create(pet, { idempotencyKey: `import-${recordId}`, timeout: "2 days" })
        yield* onCreated(recordId, id)
      }),
      { concurrency: 5 }
    ),
    Stream.runDrain
  )
