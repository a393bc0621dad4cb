/** A real Redis server for one test, without files, and with a clock that the test can set. */
import { Effect } from "effect"
import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process"
import { existsSync, renameSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { promisify } from "node:util"
import type { Certificate } from "./Certificates.ts"
import { killChild, untilListening } from "./Process.ts"
import { freePort, inMemory, temporaryDirectoryIn } from "./Temporary.ts"

const server = ["/usr/bin/redis-server", "/usr/bin/valkey-server", "/usr/local/bin/redis-server"].find(existsSync)

/** libfaketime, and another malloc than jemalloc, which reads the time before libfaketime is ready. */
const fakeTime = ["x86_64", "aarch64"].map((machine) => [
  `/usr/lib/${machine}-linux-gnu/faketime/libfaketime.so.1`,
  `/lib/${machine}-linux-gnu/libc_malloc_debug.so.0`
]).find((files) => files.every(existsSync))

export const isInstalled = server !== undefined && fakeTime !== undefined

/** The environment of a process that reads its wall-clock time from a file. */
const fakeTimeEnv = { LD_PRELOAD: fakeTime?.join(" "), FAKETIME_NO_CACHE: "1", FAKETIME_DONT_FAKE_MONOTONIC: "1" }

/** The certificate of a server, and the authority of its clients, which need a certificate. */
export type Tls = Readonly<Record<"certificate" | "clientAuthority", Certificate>>

export const hasTls = server !== undefined && /ssl/.test(execFileSync("/usr/bin/ldd", [server]).toString())

const portSettings = (port: number, tls: Tls | undefined): Readonly<Record<string, string>> =>
  tls === undefined ? { port: String(port) } : {
    "port": "0",
    "tls-port": String(port),
    "tls-auth-clients": "yes",
    "tls-cert-file": tls.certificate.cert,
    "tls-key-file": tls.certificate.key,
    "tls-ca-cert-file": tls.clientAuthority.cert
  }

/** Sends a command with redis-cli and returns the reply. It retries when a failover closes the server's connections. */
export const command = (port: number, ...line: ReadonlyArray<string>) =>
  Effect.tryPromise(() => promisify(execFile)("/usr/bin/redis-cli", ["-p", String(port), ...line])).pipe(
    Effect.retry({ times: 3, while: ({ cause }) => /reset by peer|closed the connection/.test(String(cause)) }),
    Effect.orDie,
    Effect.map(({ stdout }) => stdout.trim())
  )

export const run = Effect.fnUntraced(function*(options: {
  readonly tls?: Tls
  readonly port?: number
  readonly files?: Readonly<Record<string, string>>
  /** Arguments beside those of the port, or instead of all others for a sentinel. */
  readonly arguments?: ReadonlyArray<string>
  readonly isSentinel?: boolean
} = {}) {
  const { arguments: own = [], files = {}, isSentinel = false, tls } = options
  const port = options.port ?? (yield* freePort)
  const directory = yield* temporaryDirectoryIn(inMemory)
  for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text)
  const clock = join(directory, "clock")
  let child: ChildProcess | undefined

  const start = (env: NodeJS.ProcessEnv) =>
    Effect.suspend(() => {
      const ports = Object.entries(portSettings(port, tls)).flatMap(([name, value]) => [`--${name}`, value])
      const args = isSentinel ? own : [...ports, "--save", "", "--appendonly", "no", ...own]
      child = spawn(server ?? "", args, { cwd: directory, stdio: "ignore", env })
      return untilListening(port)
    })
  const kill = Effect.suspend(() => killChild(child))
  yield* Effect.addFinalizer(() => kill)
  return {
    port,
    pid: () => child?.pid ?? 0,
    url: `${tls === undefined ? "redis" : "rediss"}://127.0.0.1:${port}`,
    start: start({}),
    /** Starts the server. Its clock stands at the last `setTime`. */
    startWithClock: start({ ...fakeTimeEnv, TZ: "UTC", FAKETIME_TIMESTAMP_FILE: clock }),
    setTime: (milliseconds: number): void => {
      const [date = "", time = ""] = new Date(milliseconds).toISOString().split(/[TZ]/)
      // libfaketime rounds fractions down: half a millisecond more keeps the time exact.
      writeFileSync(`${clock}.new`, `${date} ${time}5\n`)
      renameSync(`${clock}.new`, clock)
    },
    kill
  }
})

/** Runs a sentinel with `config` and a port. With `tls`, the port is for TLS. */
export const runSentinel = Effect.fnUntraced(function*(config: string, tls?: Tls) {
  const port = yield* freePort
  const lines = Object.entries(portSettings(port, tls)).map(([name, value]) => `${name} ${value}`)
  const files = { "sentinel.conf": [...lines, config].join("\n") }
  return yield* runStarted({ port, isSentinel: true, files, arguments: ["sentinel.conf", "--sentinel"] })
})

/** Starts a sentinel and returns its port. */
export const startSentinel = (config: string, tls?: Tls) => Effect.map(runSentinel(config, tls), ({ port }) => port)

export type RedisServer = Effect.Success<ReturnType<typeof run>>
export const runStarted = (options?: Parameters<typeof run>[0]) => Effect.tap(run(options), ({ start }) => start)
