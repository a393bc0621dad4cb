import { Effect, Schema } from "effect"
import { SqlSchema } from "effect/sql"

export const decode = <Row extends Schema.Constraint, E, R>(
  table: string,
  Row: Row,
  statement: Effect.Effect<ReadonlyArray<unknown>, E, R>
) =>
  SqlSchema.findAll({ Request: Schema.Void, Result: Row, execute: () => statement })(undefined).pipe(
    Effect.catchIf(Schema.isSchemaError, ({ message }) =>
      Effect.die(new Error(`The table ${table} has an invalid row: ${message}`)))
  )
