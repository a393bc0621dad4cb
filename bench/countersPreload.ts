/**
 * Counts the Effect operations and the allocated bytes of the process that imports it. Prints both on SIGUSR2, as a line
 * of standard error, and collects garbage. Between two of these, nothing may be collected (`nodeFlags` of `counters.ts`).
 */
import { MixedScheduler } from "effect/Scheduler"

let operations = 0
// Effect's run loop calls `shouldYield` before each operation.
const { shouldYield } = MixedScheduler.prototype
MixedScheduler.prototype.shouldYield = function(fiber) {
  operations++
  return shouldYield.call(this, fiber)
}

process.on("SIGUSR2", () => {
  const bytes = process.memoryUsage().heapUsed
  // The next count begins with an empty young generation.
  globalThis.gc?.()
  const bytesLeft = process.memoryUsage().heapUsed
  process.stderr.write(`counters ${JSON.stringify({ operations, bytes, bytesLeft })}\n`)
})
