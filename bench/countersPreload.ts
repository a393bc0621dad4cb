/**
 * Counts the Effect operations and the allocated bytes of each request to the process that imports it. Prints medians on
 * SIGUSR2, as a line of standard error, and collects garbage. A request lasts until the next one arrives, so requests
 * must come one after the other. Medians leave out background work, which few requests meet. Between two of these
 * signals, nothing may be collected (`nodeFlags` of `counters.ts`).
 */
import { Server } from "node:http"
import { createRequire } from "node:module"
import { join } from "node:path"
import { pathToFileURL } from "node:url"

// The service of another directory has an Effect of its own.
const schedulerPath = createRequire(join(process.cwd(), "package.json")).resolve("effect/Scheduler")
const { MixedScheduler }: typeof import("effect/Scheduler") = await import(pathToFileURL(schedulerPath).href)

let operations = 0
// Effect's run loop calls `shouldYield` before each operation.
const { shouldYield } = MixedScheduler.prototype
MixedScheduler.prototype.shouldYield = function(fiber) {
  operations++
  return shouldYield.call(this, fiber)
}

interface Count {
  readonly operations: number
  readonly bytes: number
}

const now = (): Count => ({ operations, bytes: process.memoryUsage().heapUsed })

let requests: Array<Count> = []
let last: Count | undefined
const { emit } = Server.prototype
Server.prototype.emit = function(event: string, ...values: ReadonlyArray<unknown>) {
  if (event === "request") {
    const arrived = now()
    if (last !== undefined) {
      requests.push({ operations: arrived.operations - last.operations, bytes: arrived.bytes - last.bytes })
    }
    last = now()
  }
  return Reflect.apply(emit, this, [event, ...values])
}

const median = (values: ReadonlyArray<number>): number => values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0

process.on("SIGUSR2", () => {
  const counters = {
    operations: median(requests.map((each) => each.operations)),
    bytes: median(requests.map(({ bytes }) => bytes))
  }
  requests = []
  last = undefined
  globalThis.gc?.()
  process.stderr.write(`counters ${JSON.stringify(counters)}\n`)
})
