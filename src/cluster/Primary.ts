/** The primary process: it starts workers, replaces those that end, and merges what they report. */
import { Data, Duration, Effect, Exit, Queue, Runtime } from "effect"
import { notReady, type Topic } from "./Channel.ts"
import * as MetricsText from "./MetricsText.ts"
import * as WorkerProcess from "./WorkerProcess.ts"

/** A worker that ends sooner counts as failing, so that its replacement waits longer each time. */
const youngMs = 60_000
const maxBackOffSeconds = 30
/** A worker that gives no reply to so many questions in a row hangs. */
const maxMissedPolls = 3
const pollInterval = "10 seconds"
/** The maximum time for the start of a worker in a rolling restart. The service waits 30 seconds for its database. */
const maxStartTime = "60 seconds"

const describeEnd = ({ code, pid, signal }: WorkerProcess.End): string =>
  `Worker ${pid} ${signal === null ? `exited with code ${code}` : `was killed by ${signal}`}`

/** A worker ended before it served requests. As the first one, it ends the primary process with its exit code. */
export class StartFailed extends Data.TaggedError("StartFailed")<WorkerProcess.End> {
  override readonly [Runtime.errorExitCode] = this.code
  override readonly message = `${describeEnd(this)} during its start`
}

/** One of the `WORKERS` positions, and the worker in it. */
interface Slot {
  current: WorkerProcess.WorkerProcess
}

const readiness = (worker: WorkerProcess.WorkerProcess) =>
  Effect.filterOrFail(worker.ask("readiness"), (text) => text !== notReady)

/** All running workers and their metrics. */
const makeWorkers = () => {
  /** The last known metrics of each running worker. */
  const metrics = new Map<WorkerProcess.WorkerProcess, string>()
  /** The counts of all workers that have ended, so that no counter ever falls. */
  let endedMetrics = ""
  const setMetrics = (worker: WorkerProcess.WorkerProcess, text: string): void => {
    if (metrics.has(worker)) metrics.set(worker, text)
  }
  /** Asks a worker for its metrics. */
  const poll = (worker: WorkerProcess.WorkerProcess) =>
    Effect.map(worker.ask("metrics"), (text) => setMetrics(worker, text))
  const others = (worker: WorkerProcess.WorkerProcess) =>
    [...metrics.keys()].filter((other) => other !== worker && other.isRunning())

  const answer = (worker: WorkerProcess.WorkerProcess, topic: Topic, text: string) => {
    switch (topic) {
      case "finalMetrics":
        setMetrics(worker, text)
        return Effect.succeed("")
      case "allMetrics":
        setMetrics(worker, text)
        // The sum has the last known metrics of a worker that hangs.
        return Effect.forEach(others(worker), (other) => Effect.ignore(poll(other)), { concurrency: "unbounded" })
          .pipe(Effect.map(() => MetricsText.merge([endedMetrics, ...metrics.values()])))
      default:
        return Effect.orElseSucceed(Effect.raceAll(others(worker).map(readiness)), () => notReady)
    }
  }
  const onEnd = (worker: WorkerProcess.WorkerProcess): void => {
    endedMetrics = MetricsText.merge([endedMetrics, MetricsText.withoutGauges(metrics.get(worker) ?? "")])
    metrics.delete(worker)
  }
  return {
    // An interruption must not leave a process that is not among the running ones.
    fork: Effect.uninterruptible(Effect.tap(WorkerProcess.fork({ answer, onEnd }), (worker) => {
      metrics.set(worker, "")
      return Effect.logInfo(`Worker ${worker.pid} starts`)
    })),
    poll,
    running: () => [...metrics.keys()]
  }
}

type Workers = ReturnType<typeof makeWorkers>

/** Waits until `worker` hangs. The replies keep its last known metrics recent. */
const untilHanging = Effect.fnUntraced(function*(worker: WorkerProcess.WorkerProcess, { poll }: Workers) {
  yield* worker.started
  let missed = 0
  while (missed < maxMissedPolls) {
    yield* Effect.sleep(pollInterval)
    missed = (yield* Effect.isSuccess(poll(worker))) ? 0 : missed + 1
  }
})

/** Keeps a worker in `slot`: replaces each one that ends or hangs, at once the first time, later after a back-off. */
const supervise = Effect.fnUntraced(function*(slot: Slot, workers: Workers) {
  let failures = 0
  while (true) {
    const worker = slot.current
    const end = yield* Effect.raceFirst(worker.ended, Effect.andThen(untilHanging(worker, workers), worker.kill))
    if (slot.current !== worker) continue
    if (end.livedMs >= youngMs) failures = 0
    const seconds = failures === 0 ? 0 : Math.min(2 ** (failures - 1), maxBackOffSeconds)
    failures++
    yield* Effect.logError(
      `${describeEnd(end)}. Another one starts ${seconds === 0 ? "at once" : `in ${seconds} s`}`
    )
    yield* Effect.sleep(Duration.seconds(seconds))
    // A rolling restart may have put a new worker into the slot meanwhile.
    if (slot.current === worker) slot.current = yield* workers.fork
  }
})

/** Waits until `worker` serves requests. Fails if it ends before. */
const untilStarted = (worker: WorkerProcess.WorkerProcess) =>
  Effect.raceFirst(
    worker.started,
    Effect.flatMap(worker.ended, (end) => Effect.fail(new StartFailed(end)))
  )

/** Replaces the workers one by one. A new worker serves requests before the old one shuts down. */
const restart = Effect.fnUntraced(function*(slots: ReadonlyArray<Slot>, { fork }: Workers) {
  yield* Effect.logInfo("A rolling restart begins")
  for (const slot of slots) {
    const next = yield* fork
    const outcome = yield* Effect.exit(Effect.timeout(untilStarted(next), maxStartTime))
    if (Exit.isFailure(outcome)) {
      yield* next.stop
      yield* Effect.logError("The rolling restart ends, because a new worker did not start. The old workers stay")
      return
    }
    const old = slot.current
    slot.current = next
    yield* old.retire
  }
  yield* Effect.logInfo("The rolling restart is complete")
})

/** Runs `count` workers, and replaces them all on SIGHUP. Ends them when it is interrupted. */
export const run = Effect.fnUntraced(function*(count: number) {
  const workers = makeWorkers()
  const { fork, running } = workers
  yield* Effect.addFinalizer(() => Effect.forEach(running(), ({ stop }) => stop, { concurrency: "unbounded" }))
  // Further signals during a restart cause one more.
  const restarts = yield* Queue.sliding<void>(1)
  const onHangUp = () => void Queue.offerUnsafe(restarts, undefined)
  process.on("SIGHUP", onHangUp)

  // The first worker migrates the database alone, and one report of an invalid setting is enough.
  const first = yield* fork
  yield* untilStarted(first)
  const slots = [first, ...yield* Effect.replicateEffect(fork, count - 1)].map((current): Slot => ({ current }))
  yield* Effect.forkScoped(Effect.forever(Effect.andThen(Queue.take(restarts), restart(slots, workers))))
  return yield* Effect.forEach(slots, (slot) => supervise(slot, workers), { concurrency: "unbounded", discard: true })
}, Effect.scoped)
