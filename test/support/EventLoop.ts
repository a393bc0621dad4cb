import { Worker } from "node:worker_threads"

/**
 * Ends this process once its event loop has stood still for 20 seconds. Its own timers cannot, because a loop of
 * statements on the embedded database never lets the event loop turn.
 */
export const endIfEventLoopHangs = (): void => {
  const turns = new Int32Array(new SharedArrayBuffer(4))
  setInterval(() => Atomics.add(turns, 0, 1), 1_000).unref()
  new Worker(watch, { eval: true, workerData: turns }).unref()
}

const watch = `
let [last, seconds] = [0, 0]
setInterval(([turns]) => {
  seconds = turns === last ? seconds + 1 : 0
  last = turns
  if (seconds < 20) return
  require("node:fs").writeSync(2, "The event loop of a test has stood still for 20 seconds.\\n")
  process.kill(process.pid, "SIGKILL")
}, 1_000, require("node:worker_threads").workerData)`
