import * as Batcher from "./Batcher.ts"
import * as Outage from "./Outage.ts"

type Options<A, B, E> = Omit<Parameters<typeof Batcher.make<A, B, E>>[0], "concurrency" | "timeout">

/** Two batches run at once: the database works on one while this process decodes the other. */
export const read = <A, B, E>({ run, ...options }: Options<A, B, E>) =>
  Batcher.make({
    ...options,
    concurrency: 2,
    run: (items: ReadonlyArray<A>) => Outage.toServiceUnavailable(run(items))
  })

export const write = <A, B, E>({ run, ...options }: Options<A, B, E>) =>
  Batcher.make({
    ...options,
    concurrency: 1,
    run: (items: ReadonlyArray<A>) => Outage.toServiceUnavailable(run(items))
  })
