/** Batches calls of an operation into one SQL statement. Each call has its own timeout. */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import * as Batcher from "./Batcher.ts"
import { callTimeout } from "./Deadline.ts"
import * as Outage from "./Outage.ts"

type Options<A, B, E> = Omit<Parameters<typeof Batcher.make<A, B, E>>[0], "concurrency" | "timeout">

/** Two batches run at once: the database works on one while this process decodes the other. */
export const read = <A, B, E>({ run, ...options }: Options<A, B, E>) =>
  Batcher.make({
    ...options,
    timeout: callTimeout,
    concurrency: 2,
    run: (items: ReadonlyArray<A>) => Outage.toServiceUnavailable(run(items))
  })

/** One batch runs at a time. After a failover, `leaveReadOnlyServer` repeats the batch in another session. */
export const write = <A, B, E>({ run, ...options }: Options<A, B, E>) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Batcher.make({
      ...options,
      timeout: callTimeout,
      concurrency: 1,
      run: (items: ReadonlyArray<A>) => Outage.toServiceUnavailable(Outage.leaveReadOnlyServer(run(items), sql))
    }))
