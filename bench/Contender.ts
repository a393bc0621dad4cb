/** The measured processes: the service, comparable services on other frameworks, and floors, which do less than any service. */
import { Data, Effect } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { freePort } from "../test/support/Harness.ts"

const programs = {
  "Petstore": "../src/main.ts",
  "Petstore, embedded": "../src/main.ts",
  "Petstore, default": "../src/main.ts",
  "Fastify + pg": "contenders/fastify-pg.ts",
  "Fastify + postgres.js": "contenders/fastify-postgresjs.ts",
  "Express + pg": "contenders/express-pg.ts",
  "Hono + postgres.js": "contenders/hono-postgresjs.ts",
  "floor (node:http)": "contenders/floor-memory.ts",
  "floor, committing": "contenders/floor-pg.ts"
}
export type Name = keyof typeof programs

export const peers = ["Fastify + pg", "Fastify + postgres.js", "Express + pg", "Hono + postgres.js"] as const

/** How a contender is run besides its environment. */
export interface Deployment {
  /** Whether its spans are exported. The service only needs its setting, the others an SDK. */
  readonly isTraced?: boolean
}

export interface Contender {
  readonly name: Name
  readonly key: string
  readonly address: string
  readonly port: number
  readonly pid: number
  /** Milliseconds from the start of the process to its first 200. */
  readonly startedIn: number
}

export class NotStarted extends Data.TaggedError("NotStarted")<{ readonly name: string; readonly output: string }> {}

const pathOf = (program: string): string => fileURLToPath(new URL(program, import.meta.url))

/**
 * Starts a process and waits for a 200 to `key`, or for any response if there is no key yet. The scope ends it.
 * `program` overrides the path of the program.
 */
export const start = Effect.fnUntraced(function*(
  name: Name,
  { env, isTraced = false, key = "", program = pathOf(programs[name]) }: Deployment & {
    readonly env: Readonly<Record<string, string>>
    readonly key?: string
    readonly program?: string
  }
) {
  const preload = isTraced && !name.startsWith("Petstore") ? ["--import", pathOf("contenders/tracing.ts")] : []
  const port = yield* freePort
  const address = `http://127.0.0.1:${port}`
  let output = ""
  const startedAt = performance.now()
  const child = yield* Effect.acquireRelease(
    Effect.sync((): ChildProcess =>
      spawn(process.execPath, [...preload, program], {
        env: {
          PATH: process.env.PATH,
          NODE_ENV: "production",
          HOST: "127.0.0.1",
          PORT: String(port),
          MANAGEMENT_PORT: "0",
          ...env
        },
        stdio: ["ignore", "pipe", "pipe"]
      })
    ),
    (process) =>
      Effect.promise(() =>
        new Promise<void>((resolve) => {
          if (process.exitCode !== null) return resolve()
          process.on("close", () => resolve())
          process.kill(name.startsWith("Petstore") ? "SIGTERM" : "SIGKILL")
        })
      )
  )
  let isStarted = false
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on("data", (chunk: Buffer) => {
      if (!isStarted) output += chunk.toString()
    })
  }
  while (child.exitCode === null && performance.now() - startedAt < 30_000) {
    const status = yield* Effect.promise(() =>
      fetch(`${address}/v1/pets`, { headers: { authorization: `Bearer ${key}` } }).then(
        (response) => response.status,
        () => 0
      )
    )
    if (status === 200 || (key === "" && status !== 0)) {
      isStarted = true
      const contender: Contender = {
        name,
        key,
        address,
        port,
        pid: child.pid ?? 0,
        startedIn: performance.now() - startedAt
      }
      return contender
    }
    yield* Effect.sleep("5 millis")
  }
  return yield* new NotStarted({ name, output })
})

interface Usage {
  readonly cpu: number
  readonly megabytes: number
}

/** Returns the resources of the process and its children: seconds of CPU so far, and resident megabytes. */
export const usage = ({ pid }: Pick<Contender, "pid">): Usage => {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /, "").split(" ")
  const ticks = Number(fields[11]) + Number(fields[12])
  const resident = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").filter(Boolean)
  return children.map((child) => usage({ pid: Number(child) })).reduce(
    (sum, child) => ({ cpu: sum.cpu + child.cpu, megabytes: sum.megabytes + child.megabytes }),
    { cpu: ticks / 100, megabytes: Number(resident) / 1024 }
  )
}
