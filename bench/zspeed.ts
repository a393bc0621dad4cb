import { Effect, Context, Layer } from "effect"
import { RateLimiter } from "../src/rate-limit/RateLimiter.ts"
import { limiterOn } from "../test/support/Harness.ts"
import { NodeRuntime } from "@effect/platform-node"
const median = (a: number[]) => a.toSorted((x, y) => x - y)[a.length >> 1]
const limits = { perMinute: 2e9, perDay: 2e9 }
const url = process.argv[2] ?? ""
Effect.scoped(Effect.gen(function*() {
  const l = Context.get(yield* Layer.build(limiterOn(url)), RateLimiter)
  const m = Context.get(yield* Layer.build(RateLimiter.layerMemory), RateLimiter)
  const out: string[] = []
  for (const [name, limiter, callers] of [["memory", m, 1], ["redis1", l, 1], ["redis64", l, 64]] as const) {
    let n = 0
    const charge = Effect.suspend(() => limiter.charge(`key:bench${n++ % callers}`, limits))
    yield* Effect.forEach(Array.from({ length: 20_000 }), () => charge, { concurrency: 64, discard: true })
    const startedAt = performance.now(); const cpu = process.cpuUsage()
    yield* Effect.forEach(Array.from({ length: 60_000 }), () => charge, { concurrency: 64, discard: true })
    const perSecond = 60_000 / (performance.now() - startedAt) * 1000
    const c = process.cpuUsage(cpu); const used = (c.user + c.system) / 60_000
    const alone: number[] = []
    for (let i = 0; i < 3_000; i++) { const b = performance.now(); yield* charge; alone.push(performance.now() - b) }
    out.push(`${name} CPU ${used.toFixed(2)}us `+`${perSecond.toFixed(0)}/s ${(median(alone) * 1000).toFixed(1)}us`)
  }
  console.log(out.join("   "), yield* l.counting)
})).pipe(NodeRuntime.runMain)
