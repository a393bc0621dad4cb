/**
 * Ends this process, with a text, when its event loop has stood still for 20 seconds. Its own timers cannot: a loop of
 * statements on the embedded database never lets the event loop turn.
 */
import { Worker } from "node:worker_threads"

const turns = new Int32Array(new SharedArrayBuffer(4))
setInterval(() => Atomics.add(turns, 0, 1), 1_000).unref()

const watch = `
const { workerData: turns } = require("node:worker_threads")
let [last, seconds] = [0, 0]
setInterval(() => {
  seconds = turns[0] === last ? seconds + 1 : 0
  last = turns[0]
  if (seconds < 20) return
  require("node:fs").writeSync(2, "The event loop of a test has stood still for 20 seconds.\\n")
  process.kill(process.pid, "SIGKILL")
}, 1_000)`
new Worker(watch, { eval: true, workerData: turns }).unref()
