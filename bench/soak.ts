/**
 * Sends mixed load for half an hour (`SOAK_MINUTES`), while the database fails every 90 seconds. Prints the outcome,
 * draws requests, latency and memory over time into `bench/soak.svg`, and fails if a pet was lost. It needs PostgreSQL's
 * programs on the machine.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { PgClient } from "@effect/sql-pg"
import { Config, Console, Data, Effect, Redacted, Schedule } from "effect"
import { writeFileSync } from "node:fs"
import { issueKey } from "../test/support/Harness.ts"
import * as Load from "../test/support/Load.ts"
import * as Postgres from "../test/support/Postgres.ts"
import * as Proxy from "../test/support/Proxy.ts"
import * as Contender from "./Contender.ts"

const callers = 16
/** The pause between two requests of a caller. */
const pause = "10 millis"

interface Second {
  ok: number
  unavailable: number
  other: number
  latencies: Array<number>
  megabytes: number
}

/** The 99th percentile of the latencies of one second, or 0 for a second without a response. */
const p99 = ({ latencies }: Second): number =>
  latencies.toSorted((a, b) => a - b)[Math.floor(latencies.length * 0.99)] ?? 0

class Failed extends Data.TaggedError("Failed")<{ readonly message: string }> {}

const soak = Effect.gen(function*() {
  const minutes = yield* Config.Int("SOAK_MINUTES").pipe(Config.withDefault(30))
  const postgres = yield* Postgres.run()
  const proxy = yield* Proxy.run(postgres.port)
  const sql = PgClient.layer({ url: Redacted.make(postgres.url) })
  const key = yield* issueKey(sql)
  const url = `postgres://postgres@127.0.0.1:${proxy.port}/postgres`
  const service = yield* Contender.start("Petstore", {
    env: { DATABASE_URL: url },
    key
  })

  yield* Load.request(service.address, service.key)

  const seconds: ReadonlyArray<Second> = Array.from(
    { length: minutes * 60 },
    () => ({ ok: 0, unavailable: 0, other: 0, latencies: [], megabytes: 0 })
  )
  const faults: Array<{ readonly name: string; readonly from: number; to: number }> = []
  const acknowledged: Array<string> = []
  const startedAt = performance.now()
  const now = () => Math.min(minutes * 60 - 1, Math.floor((performance.now() - startedAt) / 1000))
  const state = { ended: false }

  const paths = [
    undefined,
    "/v1/pets/1",
    "/v1/pets",
    undefined,
    "/v1/pets?status=available",
    "/v1/pets?limit=50&cursor=MTAw"
  ]
  const caller = Effect.fnUntraced(function*(first: number) {
    for (let i = first; !state.ended; i++) {
      const outcome = yield* Load.request(service.address, service.key, paths[i % paths.length])
      const at = seconds[now()]
      if (at === undefined) break
      if (outcome.status === 200 || outcome.status === 201) at.ok++
      else if (outcome.status === 503) at.unavailable++
      else at.other++
      at.latencies.push(outcome.took)
      if (outcome.status === 201) acknowledged.push(outcome.name)
      yield* Effect.sleep(pause)
    }
  })

  const fault = (
    name: string,
    begin: Effect.Effect<unknown, unknown>,
    length: number,
    end: Effect.Effect<unknown, unknown>
  ) =>
    Effect.gen(function*() {
      const entry = { name, from: now(), to: 0 }
      faults.push(entry)
      yield* begin
      yield* Effect.sleep(`${length} seconds`)
      yield* end
      entry.to = now()
    })
  const network = (name: Proxy.Fault, length: number) =>
    fault(name, Effect.sync(() => proxy.setFault(name)), length, Effect.sync(() => proxy.setFault(undefined)))
  const allFaults = [
    fault("restarted", postgres.stop, 1, postgres.start),
    network("slow", 20),
    fault("killed", postgres.kill, 5, postgres.start),
    network("refusing", 10),
    fault("frozen", postgres.freeze, 15, postgres.thaw),
    network("hanging", 15)
  ]
  const injectFaults = Effect.gen(function*() {
    for (let turn = 0; !state.ended; turn++) {
      yield* Effect.sleep("90 seconds")
      if (now() < minutes * 60 - 30) yield* allFaults[turn % allFaults.length] ?? Effect.void
    }
  })
  const recordMemory = Effect.sync(() => {
    const at = seconds[now()]
    if (at !== undefined) at.megabytes = Contender.usage(service).megabytes
  })

  yield* Effect.forkScoped(injectFaults)
  yield* Effect.forkScoped(Effect.repeat(recordMemory, Schedule.spaced("500 millis")))
  yield* Effect.forkScoped(Effect.andThen(
    Effect.sleep(`${minutes} minutes`),
    Effect.sync(() => {
      state.ended = true
    })
  ))
  yield* Effect.forEach(Array.from({ length: callers }, (_, index) => index), caller, {
    concurrency: "unbounded",
    discard: true
  })

  const stored = yield* Effect.provide(
    Effect.flatMap(PgClient.PgClient, (client) => client<{ readonly name: string }>`SELECT name FROM pets`),
    sql
  )
  const names = new Set(stored.map(({ name }) => name))
  const lost = acknowledged.filter((name) => !names.has(name)).length
  const twice = stored.length - names.size
  const sum = (field: "ok" | "unavailable" | "other") => seconds.reduce((total, each) => total + each[field], 0)
  const slowest = seconds.map(p99).toSorted((a, b) => a - b)
  const memory = seconds.map(({ megabytes }) => megabytes)
  yield* Console.log(
    [
      `${minutes} minutes, ${callers} callers, ${faults.length} faults`,
      `${sum("ok")} succeeded, ${sum("unavailable")} rejected (503), ${sum("other")} with another status`,
      `99th percentile by the second: ${slowest[slowest.length >> 1]?.toFixed(0)} ms in half of them, ` +
      `${slowest.at(-1)?.toFixed(0)} ms at most`,
      `memory: ${memory[60]?.toFixed(0)} MB after a minute, ${memory.at(-1)?.toFixed(0)} MB at the end, ` +
      `${Math.max(...memory).toFixed(0)} MB at most`,
      `${acknowledged.length} creates acknowledged: ${lost} lost, ${twice} stored twice`
    ].join("\n")
  )
  writeFileSync(new URL("soak.svg", import.meta.url), draw(seconds, faults))
  yield* lost + twice + sum("other") > 0 ? new Failed({ message: "The soak failed." }) : Effect.void
})

const width = 1_000
const height = 140

/** Draws three charts over time, one below the other, with the faults in the background. */
const draw = (
  seconds: ReadonlyArray<Second>,
  faults: ReadonlyArray<{ name: string; from: number; to: number }>
): string => {
  const x = (second: number) => 50 + second / seconds.length * width
  const chart = (
    index: number,
    title: string,
    lines: ReadonlyArray<{ readonly colour: string; readonly of: (second: Second) => number }>
  ): string => {
    const top = 30 + index * (height + 40)
    const highest = Math.max(1, ...seconds.flatMap((each) => lines.map(({ of }) => of(each))))
    const y = (value: number) => top + height - value / highest * height
    return [
      ...faults.map(({ from, name, to }) =>
        `<rect x="${x(from).toFixed(1)}" y="${top}" width="${
          Math.max(1, x(to) - x(from)).toFixed(1)
        }" height="${height}" fill="#fde2e2"><title>${name}</title></rect>`
      ),
      `<rect x="50" y="${top}" width="${width}" height="${height}" fill="none" stroke="#999"/>`,
      `<text x="50" y="${top - 8}">${title}</text>`,
      `<text x="44" y="${top + 10}" text-anchor="end">${highest.toFixed(0)}</text>`,
      `<text x="44" y="${top + height}" text-anchor="end">0</text>`,
      ...lines.map(({ colour, of }) =>
        `<polyline fill="none" stroke="${colour}" points="${
          seconds.map((each, at) => `${x(at).toFixed(1)},${y(of(each)).toFixed(1)}`).join(" ")
        }"/>`
      )
    ].join("\n")
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width + 70} ${
    3 * (height + 40) + 30
  }" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
${
    chart(0, "Requests a second: succeeded (green), rejected with 503 (red)", [
      { colour: "#2a7", of: ({ ok }) => ok },
      { colour: "#c33", of: ({ other, unavailable }) => unavailable + other }
    ])
  }
${chart(1, "Latency, 99th percentile: milliseconds", [{ colour: "#27a", of: p99 }])}
${chart(2, "Resident memory: megabytes", [{ colour: "#72a", of: ({ megabytes }) => megabytes }])}
</svg>
`
}

Effect.scoped(soak).pipe(NodeRuntime.runMain)
