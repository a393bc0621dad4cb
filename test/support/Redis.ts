/** A real Redis server for one test, without files, and with a clock that the test can set. */
import { Effect } from "effect"
import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process"
import { existsSync, mkdtempSync, renameSync, writeFileSync } from "node:fs"
import { connect } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { Certificate } from "./Certificates.ts"
import { freePort } from "./Harness.ts"
import * as TemporaryDirectory from "./TemporaryDirectory.ts"

const server = ["/usr/bin/redis-server", "/usr/bin/valkey-server", "/usr/local/bin/redis-server"].find(existsSync)

/**
 * libfaketime shows a process another time. jemalloc reads the time before libfaketime is ready, so another malloc is
 * preloaded.
 */
const fakeTime = ["x86_64", "aarch64"].flatMap((machine) => {
  const files = [
    `/usr/lib/${machine}-linux-gnu/faketime/libfaketime.so.1`,
    `/lib/${machine}-linux-gnu/libc_malloc_debug.so.0`
  ]
  return files.every((file) => existsSync(file)) ? files : []
})

/** Names the programs that are missing on this machine for suites on Redis. */
export const missing: string | undefined = server === undefined
  ? "there is no redis-server"
  : fakeTime.length === 0
  ? "there is no libfaketime"
  : undefined

/** In memory, because a cluster node that waits for a slow disk replies to no command. */
const memoryDirectory = existsSync("/dev/shm") ? "/dev/shm" : tmpdir()

/** The environment of a process that reads its wall-clock time from the file `clock`. */
const fakeTimeEnv = (clock: string) => ({
  LD_PRELOAD: fakeTime.join(" "),
  FAKETIME_TIMESTAMP_FILE: clock,
  FAKETIME_NO_CACHE: "1",
  FAKETIME_DONT_FAKE_MONOTONIC: "1",
  TZ: "UTC"
})

const writeFakeTime = (clock: string, time: string): void => {
  writeFileSync(`${clock}.new`, `${time}\n`)
  renameSync(`${clock}.new`, clock)
}

/** Waits until `port` accepts connections. */
const untilListening = (port: number) =>
  Effect.promise(async () => {
    while (true) {
      const open = await new Promise<boolean>((resolve) => {
        const socket = connect(port, "127.0.0.1")
        socket.on("connect", () => resolve(true)).on("error", () => resolve(false))
        socket.on("connect", () => socket.destroy())
      })
      if (open) return
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
  })

/** The certificate of a server, and the authority of its clients, which need a certificate. */
export interface Tls {
  readonly certificate: Certificate
  readonly clientAuthority: Certificate
}

/** Whether the server was built with TLS. */
export const hasTls = server !== undefined && /ssl/.test(execFileSync("/usr/bin/ldd", [server]).toString())

export const tlsArguments = (port: number, { certificate, clientAuthority }: Tls): ReadonlyArray<string> =>
  Object.entries({
    "--port": "0",
    "--tls-port": String(port),
    "--tls-auth-clients": "yes",
    "--tls-cert-file": certificate.cert,
    "--tls-key-file": certificate.key,
    "--tls-ca-cert-file": clientAuthority.cert
  }).flat()

/** Another kind of server than a single Redis without files. */
interface Options {
  readonly tls?: Tls
  /** The port, if it is not any free one. */
  readonly port?: number
  /** Text of files in the directory of the server, by name. */
  readonly files?: Readonly<Record<string, string>>
  /** Arguments beside those of the port, or instead of all others for a sentinel. */
  readonly arguments?: ReadonlyArray<string>
  readonly isSentinel?: boolean
}

/** Runs a Redis for as long as the scope lasts. */
export const run = Effect.suspend(() => runWith({}))
/** Runs a Redis that takes only connections with TLS. */
export const runWithTls = (tls: Tls) => runWith({ tls })

export type RedisServer = Effect.Success<ReturnType<typeof runWith>>

const execute = (port: number, line: ReadonlyArray<string>) =>
  Effect.callback<string, Error>((resume) => {
    execFile("/usr/bin/redis-cli", ["-p", String(port), ...line], (error, stdout) => {
      resume(error === null ? Effect.succeed(stdout.trim()) : Effect.fail(error))
    })
  })

/** Sends a command with redis-cli and returns the reply as text. */
export const command = (port: number, ...line: ReadonlyArray<string>) => Effect.orDie(execute(port, line))

/** As `command`, on a server that sentinels may make a replica. They close its connections, and then it retries. */
export const commandDuringFailover = (port: number, ...line: ReadonlyArray<string>) =>
  execute(port, line).pipe(
    Effect.retry({ times: 3, while: ({ message }) => /reset by peer|closed the connection/.test(message) }),
    Effect.orDie
  )

/** Runs a server of the Redis program for as long as the scope lasts. */
export const runWith = Effect.fnUntraced(function*(options: Options) {
  const { files = {}, isSentinel = false, tls } = options
  const port = options.port ?? (yield* freePort)
  const directory = mkdtempSync(join(memoryDirectory, "petstore-redis-"))
  for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text)
  const clock = join(directory, "clock")
  let child: ChildProcess | undefined

  const setTime = (milliseconds: number): void => {
    const [date = "", time = ""] = new Date(milliseconds).toISOString().split(/[TZ]/)
    // libfaketime rounds fractions down: half a millisecond more keeps the time exact.
    writeFakeTime(clock, `${date} ${time}5`)
  }
  const start = (withClock: boolean) =>
    Effect.suspend(() => {
      const ports = tls === undefined ? ["--port", String(port)] : tlsArguments(port, tls)
      const all = [...ports, "--save", "", "--appendonly", "no", ...options.arguments ?? []]
      child = spawn(server ?? "", isSentinel ? options.arguments ?? [] : all, {
        cwd: directory,
        stdio: "ignore",
        env: withClock ? fakeTimeEnv(clock) : {}
      })
      return untilListening(port)
    })
  const kill = Effect.promise(() =>
    new Promise<void>((resolve) => {
      if (child === undefined || child.exitCode !== null || child.signalCode !== null) return resolve()
      child.on("exit", () => resolve())
      child.kill("SIGKILL")
    })
  )
  yield* Effect.addFinalizer(() => Effect.andThen(kill, TemporaryDirectory.remove(directory)))
  return {
    port,
    pid: () => child?.pid ?? 0,
    url: `${tls === undefined ? "redis" : "rediss"}://127.0.0.1:${port}`,
    start: start(false),
    /** Starts the server. Its clock stands at the last `setTime`. */
    startWithClock: start(true),
    setTime,
    /** Kills the server. Its data is lost. */
    kill,
    /** Sends inline commands without waiting for replies. */
    type: (line: string) =>
      Effect.promise(() =>
        new Promise<void>((resolve) => {
          const socket = connect(port, "127.0.0.1", () => socket.write(`${line}\r\n`))
          socket.on("data", () => {
            socket.destroy()
            resolve()
          })
        })
      )
  }
})
