import { NodeRuntime } from "@effect/platform-node"
import { Effect } from "effect"
import { spawn } from "node:child_process"
import { mkdtempSync, readdirSync, readFileSync } from "node:fs"
import { temporaryDirectory } from "../test/Harness.ts"
import * as Contender from "./Contender.ts"
import * as Workload from "./Workload.ts"
import * as Wrk from "./wrk.ts"
const op = process.argv[2] as any, level = process.argv[3] ?? "warn"
const prog = Effect.gen(function*() {
  const { key, url } = yield* Workload.database(20_000)
  const files = Workload.write(yield* temporaryDirectory, 20_000)
  const port = yield* Contender.freePort
  const dir = mkdtempSync("/tmp/p/prof")
  const child = spawn(process.execPath, [
    ...(process.env.FLAGS ?? "").split(" ").filter(Boolean),
    "--cpu-prof",
    "--cpu-prof-dir",
    dir,
    "/work/main/src/main.ts"
  ], {
    env: {
      ...process.env,
      DATABASE_URL: url,
      HOST: "127.0.0.1",
      PORT: String(port),
      MANAGEMENT_PORT: "0",
      LOG_LEVEL: level,
      NODE_ENV: "production"
    },
    stdio: ["ignore", "inherit", "inherit"]
  })
  const address = `http://127.0.0.1:${port}`
  for (let i = 0; i < 200; i++) {
    const ok = yield* Effect.promise(() =>
      fetch(`${address}/v1/pets`, { headers: { authorization: `Bearer ${key}` } }).then((r) => r.ok, () => false)
    )
    if (ok) break
    yield* Effect.sleep("50 millis")
  }
  yield* Wrk.load({ address, key, file: files[op], connections: 32, seconds: 2 })
  const me = { pid: child.pid } as any
  const before = Contender.usage(me).cpu
  const m = yield* Wrk.load({ address, key, file: files[op], connections: 32, seconds: 5 })
  console.log(op, m, "cpu µs", (Contender.usage(me).cpu - before) / m.requests * 1e6)
  child.kill("SIGINT")
  yield* Effect.promise(() => new Promise((r) => child.on("close", r)))
  const file = readdirSync(dir)[0]
  const prof = JSON.parse(readFileSync(`${dir}/${file}`, "utf8"))
  const self = new Map<string, number>()
  const byId = new Map(prof.nodes.map((n: any) => [n.id, n]))
  let total = 0
  const from = prof.startTime + (prof.endTime - prof.startTime) * 0.3
  let t = prof.startTime
  prof.samples.forEach((id: number, i: number) => {
    t += prof.timeDeltas[i]
    if (t < from) return
    const n: any = byId.get(id)
    const f = n.callFrame
    if (f.functionName === "(idle)" || f.functionName === "(program)") return
    total += prof.timeDeltas[i]
    const k = `${f.functionName} ${f.url.replace(/.*node_modules\//, "").replace("file:///work/main/", "")}:${
      f.lineNumber + 1
    }`
    self.set(k, (self.get(k) ?? 0) + prof.timeDeltas[i])
  })
  for (const [k, v] of [...self].sort((a, b) => b[1] - a[1]).slice(0, Number(process.argv[4] ?? 60))) {
    console.log((v / total * 100).toFixed(1).padStart(5), k)
  }
})
Effect.scoped(prog).pipe(NodeRuntime.runMain)
