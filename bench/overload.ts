/**
 * Prints what becomes of the service beyond its capacity: additions a second that succeed, with ever more callers that send
 * again at once, whatever they are answered. On the embedded database, which is the slower.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import * as Contender from "./Contender.ts"
import { load } from "./load.ts"
import * as Workload from "./Workload.ts"

const seconds = 5
const connections = [10, 50, 200, 500, 2_000, 5_000]

const overload = Effect.gen(function*() {
  const { directory, key } = yield* Workload.embedded(10_000)
  const service = yield* Contender.start("Petstore, embedded", { env: { DATA_DIR: directory }, key })
  const request = `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n` +
    `Content-Type: application/json\r\nContent-Length: ${Workload.newPet.length}\r\n\r\n${Workload.newPet}`
  const run = (callers: number) =>
    Effect.promise(() => load({ ports: [service.port], request, connections: callers, seconds }))
  yield* run(50)
  let peak = 0
  for (const callers of connections) {
    const { p50, p99, requestsPerSecond, statuses } = yield* run(callers)
    const all = statuses.values().reduce((sum, many) => sum + many, 0)
    const good = requestsPerSecond * (statuses.get(201) ?? 0) / all
    peak = Math.max(peak, good)
    yield* Console.log(
      `${String(callers).padStart(5)} callers   ${good.toFixed(0).padStart(6)} additions/s   ${
        (good / peak).toFixed(2)
      } of the peak   ` +
        `${((statuses.get(503) ?? 0) / all * 100).toFixed(0).padStart(3)} % shed   p50 ${p50.toFixed(0)} ms   p99 ${
          p99.toFixed(0)
        } ms   ` +
        `${[...statuses.keys()].join(" ")}   ${Contender.usage(service).megabytes.toFixed(0)} MB`
    )
  }
})

Effect.scoped(overload).pipe(NodeRuntime.runMain)
