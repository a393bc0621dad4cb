import { Effect, Schema } from "effect"
import { SqlSchema } from "effect/sql"
import { describeIssue } from "../api/DescribeIssue.ts"

export const decode = <Row extends Schema.Constraint, E, R>(
  table: string,
  Row: Row,
  statement: Effect.Effect<ReadonlyArray<unknown>, E, R>
) =>
  SqlSchema.findAll({ Request: Schema.Void, Result: Row, execute: () => statement })(undefined).pipe(
    Effect.catchIf(Schema.isSchemaError, ({ issue }) => {
      const place = describeIssue(issue, ([, ...column]) => [table, ...column].join("."))
      return Effect.die(new Error(`The database has an invalid row: ${place}`))
    })
  )
