/** Runs the service and other programs as processes, and sends requests to them. */
import { Effect } from "effect"
import { type ChildProcess, spawn, type SpawnOptions } from "node:child_process"
import { once } from "node:events"
import { createServer, type RequestListener } from "node:http"
import { type AddressInfo, connect } from "node:net"
import { setTimeout } from "node:timers/promises"
import { fileURLToPath } from "node:url"

const main = fileURLToPath(new URL("../../src/main.ts", import.meta.url))

/** The setting with which `npm start` keeps compiled code. A start with it takes a third of the time. */
export const compileCache = {
  NODE_COMPILE_CACHE: fileURLToPath(new URL("../../node_modules/.cache/petstore", import.meta.url))
}

/** The admin token of services, unless their settings have another one. */
export const adminToken = "adm_0123456789abcdefghijklmnopqrstuvwxyz"

/** Starts the service with the settings `env` alone, by default as `node src/main.ts`. The scope kills it. */
export const start = Effect.fnUntraced(function*(
  env: Readonly<Record<string, string>>,
  command: ReadonlyArray<string> = [process.execPath, "--disable-warning=ExperimentalWarning", main],
  cwd?: string
) {
  const own = { PATH: process.env.PATH, HOST: "127.0.0.1", PORT: "0", MANAGEMENT_PORT: "0", ADMIN_TOKEN: adminToken }
  const [program = "", ...args] = command
  const all = { ...own, ...compileCache, ...env }
  const child = yield* runProgram(program, args, { cwd, env: all, stdio: ["ignore", "pipe", "pipe"] })
  let [stdout, stderr, isRunning] = ["", "", true]
  child.stdout?.on("data", (chunk: Buffer) => void (stdout += chunk.toString()))
  child.stderr?.on("data", (chunk: Buffer) => void (stderr += chunk.toString()))
  const exit = once(child, "close").then(([code, signal]: ReadonlyArray<unknown>) => {
    isRunning = false
    return code ?? signal
  })
  const urlOf = (name: string) => new RegExp(`${name} on (http://[\\w.:]+)[,;]`).exec(stderr)?.[1] ?? ""
  yield* until(() => !isRunning || urlOf("Listening") !== "" && urlOf("console") !== "", 60)
  if (!isRunning) return yield* Effect.fail({ code: yield* Effect.promise(() => exit), stderr })
  const [address, management] = [urlOf("Listening"), urlOf("console")]
  return { process: child, address, management, stdout: () => stdout, stderr: () => stderr, exit }
})
export type Running = Effect.Success<ReturnType<typeof start>>

export const portOf = ({ address }: Pick<Running, "address">) => Number(new URL(address).port)

/** Sends a signal, and returns the exit code or the signal that ended the process. */
export const stop = ({ exit, process }: Running, signal: NodeJS.Signals) =>
  Effect.andThen(Effect.sync(() => process.kill(signal)), Effect.promise(() => exit))

/** Kills a program that runs, and waits for its end. */
export const killChild = (child: ChildProcess | undefined) =>
  Effect.promise(async () => {
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    child.kill("SIGKILL")
    await once(child, "exit")
  })

export const runProgram = (program: string, args: ReadonlyArray<string>, options: SpawnOptions = { stdio: "ignore" }) =>
  Effect.acquireRelease(Effect.sync(() => spawn(program, args, options)), killChild)

/** Sends a request with a bearer token and a JSON body. Returns the response, with its own JSON body as a value. */
export const send = (url: string, token: string, method = "GET", body?: unknown, headers: object = {}) =>
  Effect.promise(async () => {
    const response = await fetch(url, {
      method,
      headers: { "authorization": `Bearer ${token}`, "content-type": "application/json", ...headers },
      ...body !== undefined && { body: JSON.stringify(body) }
    })
    const text = await response.text()
    const isJson = text !== "" && response.headers.get("content-type")?.startsWith("application/json") === true
    return { status: response.status, headers: response.headers, text, body: isJson ? JSON.parse(text) : undefined }
  })

export const sendAdmin = ({ management }: Running, method: string, path: string, body?: unknown) =>
  send(`${management}/admin${path}`, adminToken, method, body)

export const metricsOf = ({ management }: Running) => Effect.map(send(`${management}/metrics`, ""), ({ text }) => text)

/** Waits until each of the processes counts requests in Redis, or by itself. */
export const untilCounting = (limits: "shared" | "fallback", ...services: ReadonlyArray<Running>) =>
  Effect.forEach(
    services,
    ({ management }) => untilTrue(Effect.map(send(`${management}/readyz`, ""), ({ body }) => body?.limits === limits))
  )

/** Options of a key whose limits are never reached, so that counting costs time and rejects nothing. */
export const unlimitedKeyOptions = { name: "a", plan: "enterprise", limits: { perMinute: 2e9, perDay: 2e9 } } as const

/** Issues a key, by default one whose limits are never reached. */
export const issue = (service: Running, options: object = unlimitedKeyOptions) =>
  Effect.map(sendAdmin(service, "POST", "/keys", options), ({ body }): Readonly<Record<"id" | "key", string>> => body)

/** Waits for the key that a first start prints, and returns its secret. */
export const firstKey = ({ stdout }: Running) =>
  Effect.map(until(() => stdout().includes("curl")), () => /psk_\w+/.exec(stdout())?.[0] ?? "")

/** Waits until `condition` returns true. Fails after `seconds` in real time, also under `TestClock`. */
export const until = (condition: () => boolean, seconds?: number) =>
  untilTrue(Effect.sync(condition), String(condition), seconds)

/** Waits as `until` does. `text` describes the condition. */
export const untilTrue = <E, R>(condition: Effect.Effect<boolean, E, R>, text = "see the stack", seconds = 15) => {
  // The stack of this error has the line that waits.
  const late = new Error(`Not true within ${seconds} seconds: ${text}`)
  const wait = (ms: number) => Effect.promise((signal) => setTimeout(ms, undefined, { signal }))
  // Between two looks the event loop turns, so that the deadline of a condition that needs no I/O passes too.
  const look = Effect.repeat(Effect.tap(condition, wait(5)), { until: (isTrue) => isTrue })
  return Effect.raceFirst(Effect.asVoid(look), Effect.andThen(wait(seconds * 1_000), Effect.die(late)))
}

export const untilListening = (port: number) =>
  untilTrue(Effect.promise(() => {
    const socket = connect(port, "127.0.0.1")
    return once(socket, "connect").then(() => Boolean(socket.destroy()), () => false)
  }))

/** Serves requests on this machine for as long as the scope lasts. Returns the URL. */
export const serve = Effect.fnUntraced(function*(onRequest: RequestListener) {
  const server = createServer(onRequest)
  yield* Effect.addFinalizer(() => Effect.sync(() => server.close().closeAllConnections()))
  yield* Effect.promise(() => once(server.listen(0, "127.0.0.1"), "listening"))
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
