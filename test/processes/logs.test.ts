/** Tests of the log of a process whose reader is slow, or stops. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { load } from "../../bench/load.ts"
import { temporaryDirectory, unlimitedKeyOptions } from "../support/Harness.ts"
import { start, until } from "../support/Process.ts"

const ADMIN_TOKEN = "adm_0123456789abcdef"

const startWithKey = Effect.gen(function*() {
  const service = yield* start({ DATA_DIR: yield* temporaryDirectory, ADMIN_TOKEN, LOG_FORMAT: "json" })
  const response = yield* Effect.promise(() =>
    fetch(`${service.management}/admin/keys`, {
      method: "POST",
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
      body: JSON.stringify(unlimitedKeyOptions)
    })
  )
  const { key }: { readonly key: string } = JSON.parse(yield* Effect.promise(() => response.text()))
  const send = (requests: number) =>
    Effect.promise(() =>
      load({
        ports: [Number(new URL(service.address).port)],
        request: `GET /v1/pets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n\r\n`,
        connections: 32,
        requests
      })
    )
  return { service, send }
})

const requestLines = (stderr: string): number => stderr.match(/"message":"request"/g)?.length ?? 0

describe("The log of a process", () => {
  it.live("has a line for each request, also for those that a shutdown follows at once", () =>
    Effect.gen(function*() {
      const { send, service } = yield* startWithKey
      const { statuses } = yield* send(5_000)
      service.process.kill("SIGTERM")
      assert.strictEqual(yield* Effect.promise(() => service.exit), 0)
      assert.strictEqual(requestLines(service.stderr()), 5_000)
      assert.strictEqual(statuses.get(200), 5_000)
    }), 60_000)

  it.live(
    "does not hold up requests while nobody reads it, and tells how many lines were dropped",
    () =>
      Effect.gen(function*() {
        const { send, service } = yield* startWithKey
        service.process.stderr?.pause()
        const { p99, statuses } = yield* send(40_000)
        assert.strictEqual(statuses.get(200), 40_000)
        assert.isBelow(p99, 1_000)
        const metrics = yield* Effect.promise(async () => (await fetch(`${service.management}/metrics`)).text())
        const dropped = Number(/^petstore_log_lines_dropped_total(?:\{.*\})? (\d+)$/m.exec(metrics)?.[1])
        assert.isAbove(dropped, 1_000)
        service.process.stderr?.resume()
        yield* until(() => requestLines(service.stderr()) > 0)
        yield* Effect.sleep("500 millis")
        yield* send(1)
        yield* until(() => service.stderr().includes(`"${dropped} log lines were dropped because`))
        assert.strictEqual(requestLines(service.stderr()), 40_001 - dropped)
      }),
    60_000
  )

  it.live(
    "does not delay the end of the process by more than a second when nobody reads it",
    () =>
      Effect.gen(function*() {
        const { send, service } = yield* startWithKey
        service.process.stderr?.pause()
        yield* send(20_000)
        const exited = new Promise<number | null>((resolve) => service.process.on("exit", resolve))
        const stoppedAt = performance.now()
        service.process.kill("SIGTERM")
        assert.strictEqual(yield* Effect.promise(() => exited), 0)
        assert.isBelow(performance.now() - stoppedAt, 5_000)
        service.process.stderr?.resume()
      }),
    60_000
  )
})
