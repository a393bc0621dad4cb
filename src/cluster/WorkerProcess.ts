/** One worker as the primary process sees it: its start, its end, and the channel to it. */
import { Clock, Deferred, Effect } from "effect"
import cluster, { type Worker } from "node:cluster"
import * as Channel from "./Channel.ts"
import * as Handoff from "./Handoff.ts"

/** The end of a worker. */
export interface End {
  readonly pid: number
  readonly code: number
  readonly signal: string | null
  readonly livedMs: number
}

/** The maximum time of a graceful shutdown. A worker exits after 9.5 seconds by itself, unless it hangs. */
const maxStopTime = "11 seconds"

/**
 * The minimum time for which a worker closes each connection after its response, before it closes idle connections. A
 * client that sends a request while its idle connection closes would lose that request.
 */
const retireTime = "2 seconds"

export interface WorkerProcess {
  readonly pid: number
  readonly ask: Channel.Channel["ask"]
  /** Waits until the worker serves requests. */
  readonly started: Effect.Effect<void>
  readonly ended: Effect.Effect<End>
  /** Whether the worker serves requests. */
  readonly isRunning: () => boolean
  /** Kills the worker, which hangs. */
  readonly kill: Effect.Effect<End>
  /** Ends the worker by a graceful shutdown, or kills it if that takes too long. */
  readonly stop: Effect.Effect<End>
  /** Ends the worker so that no client notices, while other workers take new connections. */
  readonly retire: Effect.Effect<End>
}

/** Replies to a question of `worker`. `onEnd` runs as soon as the process has ended. */
export interface Owner {
  readonly answer: (worker: WorkerProcess, topic: Channel.Topic, text: string) => Effect.Effect<string, unknown>
  readonly onEnd: (worker: WorkerProcess) => void
}

const signalProcess = (child: Worker, signal: NodeJS.Signals) => Effect.sync(() => void child.process.kill(signal))

/** Starts a worker with the program, the arguments and the environment of this process. */
export const fork = Effect.fnUntraced(function*(owner: Owner): Effect.fn.Return<WorkerProcess> {
  const clock = yield* Clock.Clock
  const startedAt = clock.currentTimeMillisUnsafe()
  const started = yield* Deferred.make<void>()
  const ended = yield* Deferred.make<End>()
  const child = cluster.fork()
  Handoff.closeWithWorker(child.process)
  // A process that could not be started has no pid.
  const pid = child.process.pid ?? 0

  const end = (code: number, signal: string | null): void => {
    const isFirst = Deferred.doneUnsafe(
      ended,
      Effect.succeed({ pid, code, signal, livedMs: clock.currentTimeMillisUnsafe() - startedAt })
    )
    if (isFirst) owner.onEnd(worker)
  }
  child.on("exit", (code: number | null, signal: string | null) => end(code ?? 1, signal))
  // A process that could not be started emits no `exit`.
  child.on("error", () => pid === 0 && end(1, null))

  const log = (event: string) => Effect.logInfo(`Worker ${pid} ${event}`)
  const { ask } = yield* Channel.make({
    messages: child,
    // The callback takes the error of a channel that closes meanwhile.
    send: (message) => child.isConnected() && child.send(message, () => {}),
    answer: (topic, text) =>
      topic === "started"
        ? Effect.as(Effect.andThen(Deferred.succeed(started, undefined), log("serves requests")), "")
        : owner.answer(worker, topic, text),
    maxReplyTime: "1 second"
  })
  const kill = Effect.logError(`Worker ${pid} hangs and is killed`).pipe(
    Effect.andThen(signalProcess(child, "SIGKILL")),
    Effect.andThen(Deferred.await(ended))
  )
  const stop = signalProcess(child, "SIGTERM").pipe(
    Effect.andThen(Deferred.await(ended)),
    Effect.timeoutOrElse({ duration: maxStopTime, orElse: () => kill })
  )
  const worker: WorkerProcess = {
    pid,
    ask,
    started: Deferred.await(started),
    ended: Deferred.await(ended),
    isRunning: () => Deferred.isDoneUnsafe(started) && !Deferred.isDoneUnsafe(ended),
    kill,
    stop,
    retire: Effect.ignore(ask("retire")).pipe(Effect.andThen(Effect.sleep(retireTime)), Effect.andThen(stop))
  }
  return worker
})
