/** The measured processes: the service, and the peers that a team would write instead of it. */
import { Data, Effect, Schema } from "effect"
import { execFile } from "node:child_process"
import { once } from "node:events"
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { runProgram } from "../test/support/Process.ts"
import { freePort } from "../test/support/Temporary.ts"

const pathOf = (file: string): string => fileURLToPath(new URL(file, import.meta.url))
const contender = (file: string): string => pathOf(`contenders/${file}`)

/** Files that are not in the repository: Bun, the binary of the Go peer, and embedded databases. */
export const cache = pathOf("../node_modules/.cache/bench")
mkdirSync(cache, { recursive: true })

const run = (program: string, args: ReadonlyArray<string>, env: Readonly<Record<string, string>> = {}) =>
  Effect.tryPromise(() => promisify(execFile)(program, [...args], { env: { ...process.env, ...env } }))

/** A peer whose program or libraries cannot be installed here. */
export class Unavailable extends Data.TaggedError("Unavailable")<{ readonly message: string }> {}

interface Command {
  readonly program: string
  readonly args: ReadonlyArray<string>
  readonly cwd?: string
}

/** Bun from the npm registry, as the package of this platform, which needs no scripts. */
const bun = Effect.gen(function*() {
  const name = `@oven/bun-linux-${process.arch === "arm64" ? "aarch64" : process.arch}`
  const program = join(cache, "node_modules", name, "bin/bun")
  if (!existsSync(program)) {
    yield* run("npm", ["install", "--no-save", "--ignore-scripts", "--prefix", cache, `${name}@1.4.5`]).pipe(
      Effect.mapError(() => new Unavailable({ message: `The npm registry has no ${name}, or is out of reach.` }))
    )
  }
  return { program, args: [contender("bun.ts")] } satisfies Command
})

const goLibraries = "/usr/share/gocode"

/** The Go peer, compiled with the libraries of Debian. */
const go = Effect.gen(function*() {
  const message = "Debian's packages golang-go and golang-github-jackc-pgx-v4-dev are missing."
  if (!existsSync(join(goLibraries, "src/github.com/jackc/pgx/v4"))) return yield* new Unavailable({ message })
  yield* Effect.mapError(run("go", ["version"]), () => new Unavailable({ message }))
  const program = join(cache, "go-peer")
  yield* run("go", ["build", "-o", program, contender("server.go")], { GO111MODULE: "off", GOPATH: goLibraries })
  return { program, args: [] } satisfies Command
})

const node = (program: string) => Effect.succeed<Command>({ program: process.execPath, args: [program] })

const decodePackage = Schema.decodeUnknownEffect(
  Schema.fromJsonString(Schema.Struct({ scripts: Schema.Struct({ start: Schema.String }) }))
)

/** `npm start` of the repository in a directory, with more flags of Node. Its script replaces the shell by the service. */
const service = Effect.fnUntraced(function*(cwd: string, flags: ReadonlyArray<string>) {
  const { scripts } = yield* decodePackage(readFileSync(join(cwd, "package.json"), "utf8"))
  const start = scripts.start.replace("exec node", ["exec node", ...flags].join(" "))
  return { program: "/bin/sh", args: ["-c", start], cwd } satisfies Command
})

export const repository = pathOf("..")

const commands = {
  "Petstore": service,
  "Effect": () => node(contender("effect.ts")),
  "Bun": () => bun,
  "Go": () => go,
  "Fastify": () => node(contender("fastify.ts")),
  // Needs `SERVICE` and `KEY`: the service whose responses it repeats.
  "node:http": () => node(contender("floor.ts"))
}
export type Program = keyof typeof commands

/** The services that a team would write instead, from Effect's documentation first. */
export const peers = ["Effect", "Bun", "Go", "Fastify"] as const

/** The admin token of each started service. */
export const adminToken = "adm_0123456789abcdef"

export interface Contender {
  readonly address: string
  readonly pid: number
  /** Milliseconds from the start of the process to its first response. */
  readonly startedIn: number
  /** Returns the last part of its output. */
  readonly latestOutput: () => string
  /** Sends SIGTERM, and waits for the exit. */
  readonly stop: Effect.Effect<void>
}

export class NotStarted extends Data.TaggedError("NotStarted")<{ readonly name: string; readonly output: string }> {}

/**
 * Starts a process and waits for its first response. The scope ends it. `directory` is the repository of the service, by
 * default this one, and `flags` are for its Node.
 */
export const start = Effect.fnUntraced(function*(
  name: Program,
  env: Readonly<Record<string, string>>,
  directory = repository,
  flags: ReadonlyArray<string> = []
) {
  const { args, program, ...options }: Command = yield* commands[name](directory, flags)
  const port = String(yield* freePort)
  const address = `http://127.0.0.1:${port}`
  let output = ""
  const startedAt = performance.now()
  // Scripts of npm find this Node first.
  const general = { PATH: `${dirname(process.execPath)}:${process.env.PATH}`, NODE_ENV: "production" }
  const own = { HOST: "127.0.0.1", PORT: port, MANAGEMENT_PORT: "0", ADMIN_TOKEN: adminToken }
  const all = { ...general, ...own, ...env }
  const child = yield* runProgram(program, args, { ...options, env: all, stdio: ["ignore", "pipe", "pipe"] })
  const stop = Effect.promise(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return
    child.kill()
    await once(child, "exit")
  })
  // A peer is killed.
  if (name === "Petstore") yield* Effect.addFinalizer(() => stop)
  // The log is read and dropped, as fast as a collector of logs would read it.
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on("data", (chunk: Buffer) => {
      output = (output + chunk.toString()).slice(-10_000)
    })
  }
  const isListening = Effect.promise(() => fetch(`${address}/v1/pets`).then(() => true, () => false))
  while (!(yield* isListening)) {
    if (child.exitCode !== null || performance.now() > startedAt + 30_000) {
      return yield* new NotStarted({ name, output })
    }
    yield* Effect.sleep("5 millis")
  }
  const startedIn = performance.now() - startedAt
  const started: Contender = { address, pid: child.pid ?? 0, startedIn, latestOutput: () => output, stop }
  return started
})

/** Returns the resources of a process: seconds of CPU so far, and resident megabytes, now and at most. */
export const usage = ({ pid }: Pick<Contender, "pid">) => {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /, "").split(" ")
  const status = readFileSync(`/proc/${pid}/status`, "utf8")
  const megabytes = (name: string) => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1]) / 1024
  const cpu = (Number(fields[11]) + Number(fields[12])) / 100
  return { cpu, megabytes: megabytes("VmRSS"), highestMegabytes: megabytes("VmHWM") }
}

/** From now on, the highest resident megabytes are those since this call. */
export const forgetHighest = ({ pid }: Pick<Contender, "pid">) => writeFileSync(`/proc/${pid}/clear_refs`, "5")

/** Returns the seconds of CPU so far of each process whose command line contains one of `titles`. */
export const cpuOf = (titles: ReadonlyArray<string>): ReadonlyMap<number, number> => {
  const found = new Map<number, number>()
  for (const pid of readdirSync("/proc").map(Number)) {
    try {
      const commandLine = readFileSync(`/proc/${pid}/cmdline`, "utf8")
      if (titles.some((title) => commandLine.includes(title))) found.set(pid, usage({ pid }).cpu)
    } catch {
      // The process exited, or this is not a process.
    }
  }
  return found
}
