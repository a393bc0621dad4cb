import { Worker } from "node:worker_threads"

/**
 * Ends this process once its event loop has stood still for 60 seconds of CPU time, which a busy machine does not
 * shorten. Timers of this process cannot, because a loop of statements on the embedded database never lets it turn. So
 * all tests of a file in a row can be one such loop, with 20 seconds of CPU time in all threads.
 */
export const endIfEventLoopHangs = (): void => {
  const turns = new Int32Array(new SharedArrayBuffer(4))
  setInterval(() => Atomics.add(turns, 0, 1), 1_000).unref()
  new Worker(watch, { eval: true, workerData: turns }).unref()
}

const watch = `
let [last, since] = [0, 0]
setInterval(([turns]) => {
  const { system, user } = process.cpuUsage()
  if (turns !== last) [last, since] = [turns, system + user]
  if (system + user - since < 60e6) return
  require("node:fs").writeSync(2, "The event loop of a test has stood still for 60 seconds of CPU time.\\n")
  process.kill(process.pid, "SIGKILL")
}, 1_000, require("node:worker_threads").workerData)`
