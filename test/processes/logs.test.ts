/** Tests the log of a process whose reader stops. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { load } from "../../bench/load.ts"
import { dataDirectory, unlimitedKeyOptions } from "../support/Harness.ts"
import { start } from "../support/Process.ts"

const ADMIN_TOKEN = "adm_0123456789abcdef"

const startWithKey = Effect.gen(function*() {
  const service = yield* start({ DATA_DIR: yield* dataDirectory, ADMIN_TOKEN, LOG_FORMAT: "json" })
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
      const { statuses } = yield* send(2_000)
      service.process.kill("SIGTERM")
      assert.strictEqual(yield* Effect.promise(() => service.exit), 0)
      assert.strictEqual(requestLines(service.stderr()), 2_000)
      assert.strictEqual(statuses.get(200), 2_000)
    }), 120_000)

  it.live(
    "holds up neither requests nor the end of the process while its reader has stopped, and counts dropped lines",
    () =>
      Effect.gen(function*() {
        const { send, service } = yield* startWithKey
        service.process.stderr?.pause()
        const { statuses } = yield* send(20_000)
        assert.strictEqual(statuses.get(200), 20_000)
        const metrics = yield* Effect.promise(async () => (await fetch(`${service.management}/metrics`)).text())
        const dropped = Number(/^petstore_log_lines_dropped_total(?:\{.*\})? (\d+)$/m.exec(metrics)?.[1])
        const exited = new Promise<number | null>((resolve) => service.process.on("exit", resolve))
        service.process.kill("SIGTERM")
        assert.strictEqual(yield* Effect.promise(() => exited), 0)
        // What the pipe holds is still read. The lines that waited in the memory of the process are lost.
        service.process.stderr?.resume()
        yield* Effect.promise(() => service.exit)
        assert.isAbove(dropped, 0)
        assert.isAtMost(requestLines(service.stderr()) + dropped, 20_000)
      }),
    120_000
  )
})
