/** Several processes on one machine that share both ports, by `node:cluster`. */
import { Effect, type Layer } from "effect"
import cluster from "node:cluster"
import type { GracefulShutdown } from "../http/admission/GracefulShutdown.ts"
import * as Logging from "../observability/Logging.ts"
import * as Primary from "./Primary.ts"
import * as Worker from "./Worker.ts"

/**
 * Runs the primary process of `count` workers. In a process that the primary process has started, runs `service`, whose
 * servers must get the layer that `service` is given.
 */
export const run = <E>(
  count: number,
  service: (group: Layer.Layer<never, never, GracefulShutdown>) => Effect.Effect<never, E>
): Effect.Effect<void, E | Primary.StartFailed> =>
  cluster.isPrimary
    ? Effect.tapCause(Primary.run(count), (cause) => Effect.logFatal(Logging.describe(cause)))
    : service(Worker.layer)
