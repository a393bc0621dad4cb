/**
 * Prints the successful creates per second beyond the service's capacity, with more and more clients. Each sends its next
 * request immediately after any response. It needs wrk.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import { temporaryDirectory } from "../test/support/Harness.ts"
import * as Contender from "./Contender.ts"
import * as Workload from "./Workload.ts"
import * as Wrk from "./wrk.ts"

const seconds = 5
const callers = [50, 200, 500, 2_000, 5_000, 9_000]

const overload = Effect.gen(function*() {
  const { directory, key } = yield* Workload.embedded(10_000)
  const service = yield* Contender.start("Petstore, embedded", { env: { DATA_DIR: directory }, key })
  const files = yield* temporaryDirectory
  const requests = Workload.requests(files, 1).create
  const keys = Workload.write(files, "key", [key])
  const run = (connections: number) => Wrk.load({ address: service.address, requests, keys, connections, seconds })
  yield* run(50)
  const rates: Array<number> = []
  yield* Console.log("callers     creates/s      shed    p50 ms    p99 ms        MB")
  for (const connections of callers) {
    const { failed, p50, p99, requests, requestsPerSecond } = yield* run(connections)
    const succeeded = requestsPerSecond * (1 - failed / requests)
    rates.push(succeeded)
    yield* Console.log(
      String(connections).padStart(7) + succeeded.toFixed(0).padStart(14) +
        `${(failed / requests * 100).toFixed(1)} %`.padStart(10) + p50.toFixed(0).padStart(10) +
        p99.toFixed(0).padStart(10) +
        Contender.usage(service).megabytes.toFixed(0).padStart(10)
    )
  }
  const peak = Math.max(...rates)
  const lowestShare = Math.min(...rates) / peak
  yield* Console.log(`At any load at least ${(lowestShare * 100).toFixed(0)} % of the maximum.`)
})

Effect.scoped(overload).pipe(NodeRuntime.runMain)
