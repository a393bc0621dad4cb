/** A Redis of the test's own: the real server, with nothing on disk, and if need be with a clock of its own. */
import { Effect } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import { existsSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { connect } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { freePort } from "./Harness.ts"

const server = ["/usr/bin/redis-server", "/usr/bin/valkey-server", "/usr/local/bin/redis-server"].find(existsSync)

/**
 * libfaketime tells a process another time; jemalloc asks for the time too early for it, so another malloc goes along.
 */
const fakeTime = ["x86_64", "aarch64"].flatMap((machine) => {
  const files = [
    `/usr/lib/${machine}-linux-gnu/faketime/libfaketime.so.1`,
    `/lib/${machine}-linux-gnu/libc_malloc_debug.so.0`
  ]
  return files.every((file) => existsSync(file)) ? files : []
})

/** What the suites on Redis lack on this machine. */
export const missing: string | undefined = server === undefined
  ? "there is no redis-server"
  : fakeTime.length === 0
  ? "there is no libfaketime"
  : undefined

/** The environment of a process whose wall clock the file `clock` sets. */
export const fakeTimeEnv = (clock: string) => ({
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

/** Sets a clock so many seconds ahead of the real one, with which it runs. */
export const setFakeTimeAhead = (clock: string, seconds: number): void =>
  writeFakeTime(clock, `${seconds < 0 ? "" : "+"}${seconds}`)

/** Waits until `port` takes connections. */
const listening = (port: number) =>
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

/** Runs a Redis for as long as the scope lasts. */
export const run = Effect.gen(function*() {
  const port = yield* freePort
  const directory = mkdtempSync(join(tmpdir(), "petstore-redis-"))
  const clock = join(directory, "clock")
  let child: ChildProcess | undefined

  const setTime = (milliseconds: number): void => {
    const [date = "", time = ""] = new Date(milliseconds).toISOString().split(/[TZ]/)
    // libfaketime calculates with fractions: half a millisecond more, and none is lost.
    writeFakeTime(clock, `${date} ${time}5`)
  }
  const start = (withClock: boolean) =>
    Effect.suspend(() => {
      child = spawn(server ?? "", ["--port", String(port), "--save", "", "--appendonly", "no", "--dir", directory], {
        stdio: "ignore",
        env: withClock
          ? fakeTimeEnv(clock)
          : {}
      })
      return listening(port)
    })
  const kill = Effect.promise(() =>
    new Promise<void>((resolve) => {
      if (child === undefined || child.exitCode !== null || child.signalCode !== null) return resolve()
      child.on("exit", () => resolve())
      child.kill("SIGKILL")
    })
  )
  yield* Effect.addFinalizer(() =>
    Effect.andThen(kill, Effect.sync(() => rmSync(directory, { recursive: true, force: true })))
  )
  return {
    port,
    url: `redis://127.0.0.1:${port}`,
    start: start(false),
    /** Starts it with a clock that stands at what `setTime` last said, or runs as `setAhead` said. */
    startWithClock: start(true),
    setTime,
    /** Sets its clock so many seconds ahead of the real one, with which it runs. */
    setAhead: (seconds: number) => setFakeTimeAhead(clock, seconds),
    /** `kill -9`: everything in it is gone. */
    kill,
    /** Sends commands as one would type them, and does not wait. */
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
