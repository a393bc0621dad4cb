/** Runs the service as a process. */
import { Data, Effect } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import { fileURLToPath } from "node:url"

const main = fileURLToPath(new URL("../../src/main.ts", import.meta.url))

/** The setting with which `npm start` and `npm run petstore` keep compiled code. A start with it takes a third of the time. */
export const compileCache = {
  NODE_COMPILE_CACHE: fileURLToPath(new URL("../../node_modules/.cache/petstore", import.meta.url))
}

export interface Running {
  readonly process: ChildProcess
  /** The base URL of the API port. */
  readonly address: string
  /** The base URL of the management port. */
  readonly management: string
  readonly stdout: () => string
  readonly stderr: () => string
  /** The exit code, or the signal that killed the process. */
  readonly exit: Promise<number | NodeJS.Signals | null>
}

export class Exited extends Data.TaggedError("Exited")<{
  readonly code: number | NodeJS.Signals | null
  readonly stderr: string
}> {}

/** Starts the service. Its settings are `env` alone. The scope kills it. */
export const start = (env: Readonly<Record<string, string>>, program = main) =>
  Effect.acquireRelease(
    Effect.callback<Running, Exited>((resume) => {
      const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", program], {
        env: { PATH: process.env.PATH, HOST: "127.0.0.1", PORT: "0", MANAGEMENT_PORT: "0", ...compileCache, ...env },
        stdio: ["ignore", "pipe", "pipe"]
      })
      let stdout = ""
      let stderr = ""
      const exit = new Promise<number | NodeJS.Signals | null>((resolve) => {
        child.on("close", (code, signal) => resolve(code ?? signal))
      })
      child.stdout.on("data", (chunk: Buffer) => {
        stdout += chunk.toString()
      })
      let listening = false
      child.stderr.on("data", (chunk: Buffer) => {
        stderr += chunk.toString()
        if (listening) return
        const [, address] = /Listening on (http:\/\/[\w.:]+)/.exec(stderr) ?? []
        const [, management] = /Management on (http:\/\/[\w.:]+)/.exec(stderr) ?? []
        if (address === undefined || (program === main && management === undefined)) return
        listening = true
        resume(Effect.succeed({
          process: child,
          address,
          management: management ?? "",
          stdout: () => stdout,
          stderr: () => stderr,
          exit
        }))
      })
      void exit.then((code) => resume(Effect.fail(new Exited({ code, stderr }))))
    }),
    ({ exit, process }) => {
      process.kill("SIGKILL")
      return Effect.promise(() => exit)
    }
  )

/** Waits until `condition` holds. */
export const until = (condition: () => boolean) =>
  Effect.promise(async () => {
    while (!condition()) await new Promise((resolve) => setTimeout(resolve, 10))
  })
