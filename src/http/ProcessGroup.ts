/** The processes that share both ports. A process that runs alone is a group of one. */
import { Context, Effect } from "effect"
import type { Limiter } from "../rate-limit/Limiter.ts"

/** The reports of the management port about a process, or about all processes of a group. */
export interface Reports {
  /** The metrics in the text format of Prometheus. */
  readonly metrics: Effect.Effect<string>
  /** The counts in use. Dies while no request can be served. */
  readonly readiness: Effect.Effect<Effect.Success<Limiter["counting"]>>
}

interface Group {
  /** Adds this process with its own reports. Returns the reports of all processes. */
  readonly join: (own: Reports) => Effect.Effect<Reports>
  /** Announces that this process serves requests. */
  readonly started: Effect.Effect<void>
}

export const ProcessGroup = Context.Reference<Group>("petstore/http/ProcessGroup", {
  defaultValue: () => ({ join: Effect.succeed, started: Effect.void })
})
