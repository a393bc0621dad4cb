/** A worker: the whole service, on ports that it shares with other workers. */
import { Effect, Layer } from "effect"
import cluster from "node:cluster"
import { GracefulShutdown } from "../http/admission/GracefulShutdown.ts"
import { ProcessGroup, type Reports } from "../http/ProcessGroup.ts"
import * as Channel from "./Channel.ts"

type Counting = Effect.Success<Reports["readiness"]>

const countings: ReadonlyArray<Counting> = ["shared", "own", "fallback"]
const isCounting = (text: string): text is Counting => countings.some((counting) => counting === text)

const shutDown = (): void => {
  // Without this, Node ends the process at once, in the midst of requests (test/processes/workers.test.ts).
  if (cluster.worker !== undefined) cluster.worker.exitedAfterDisconnect = true
  process.kill(process.pid, "SIGTERM")
}

/** Connects the service to the primary process. When the primary process ends, the worker shuts down gracefully. */
export const layer = Layer.effect(
  ProcessGroup,
  Effect.gen(function*() {
    const draining = yield* GracefulShutdown
    /** The reports of this process. They are empty until its servers start. */
    let own: Reports = { metrics: Effect.succeed(""), readiness: Effect.never }

    const answer = (topic: Channel.Topic): Effect.Effect<string> =>
      Effect.suspend(() => {
        switch (topic) {
          case "metrics":
            return own.metrics
          case "readiness":
            return Effect.catchCause(own.readiness, () => Effect.succeed(Channel.notReady))
          default:
            draining.begun = true
            return Effect.succeed("")
        }
      })
    const { ask } = yield* Channel.make({
      messages: process,
      send: (message) => process.connected && process.send?.(message, undefined, undefined, () => {}),
      answer,
      // Longer than the primary process waits for other workers.
      maxReplyTime: "3 seconds"
    })

    // Node emits an error when it cannot reply to a primary process that has just ended.
    cluster.worker?.on("disconnect", shutDown).on("error", () => {})
    // A terminal, and some supervisors, send SIGHUP to workers too. It is a request to the primary process.
    process.on("SIGHUP", () => {})

    // The counts of this process stay part of the sum after its end.
    yield* Effect.addFinalizer(() =>
      process.connected
        ? Effect.ignore(Effect.flatMap(own.metrics, (text) => ask("finalMetrics", text)))
        : Effect.void
    )

    return {
      join: (reports) =>
        Effect.sync((): Reports => {
          own = reports
          return {
            metrics: Effect.orDie(Effect.flatMap(reports.metrics, (text) => ask("allMetrics", text))),
            // Another worker may be ready while this one is not, for example while it is being replaced.
            readiness: Effect.catchCause(reports.readiness, (cause) =>
              ask("otherReadiness").pipe(
                Effect.filterOrFail(isCounting),
                Effect.catch(() => Effect.failCause(cause))
              ))
          }
        }),
      started: Effect.orDie(Effect.asVoid(ask("started")))
    }
  })
)
