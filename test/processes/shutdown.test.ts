/** Graceful shutdown and replacement of processes, behind a real balancer and under load. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { spawn } from "node:child_process"
import { writeFileSync } from "node:fs"
import { connect } from "node:net"
import { join } from "node:path"
import * as Workload from "../../bench/Workload.ts"
import { dataDirectory, freePort, temporaryDirectory } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"
import { start, until } from "../support/Process.ts"
import { haproxy } from "../support/setup.ts"

/**
 * Starts a balancer in front of two processes. It checks the readiness of each on its management port. `bothUp` waits
 * until it sends requests to both.
 */
const balancer = Effect.fnUntraced(
  function*(servers: ReadonlyArray<{ readonly port: number; readonly management: number }>) {
    const [port, statsPort] = [yield* freePort, yield* freePort]
    const file = join(yield* temporaryDirectory, "haproxy.cfg")
    writeFileSync(
      file,
      `defaults
  mode http
  timeout connect 2s
  timeout client 30s
  timeout server 30s
  timeout check 2s
  option httpchk GET /readyz
  option redispatch
  retries 3
listen stats
  bind 127.0.0.1:${statsPort}
  stats enable
  stats uri /
frontend petstore
  bind 127.0.0.1:${port}
  default_backend petstore
backend petstore
${
        servers.map(({ management, port }, index) =>
          `  server petstore${index} 127.0.0.1:${port} check port ${management} inter 200 fall 1 rise 1`
        ).join("\n")
      }
`
    )
    yield* Effect.acquireRelease(
      Effect.sync(() => spawn(haproxy ?? "", ["-db", "-f", file], { stdio: "ignore" })),
      (child) => Effect.sync(() => child.kill("SIGKILL"))
    )
    const states = Effect.promise(() =>
      fetch(`http://127.0.0.1:${statsPort}/;csv`).then((response) => response.text(), () => "")
    )
    return {
      address: `http://127.0.0.1:${port}`,
      bothUp: Effect.repeat(states, { until: (csv) => csv.match(/^petstore,petstore\d,.*,UP,/gm)?.length === 2 })
    }
  }
)

const status = (url: string) => Effect.promise(() => fetch(url).then((response) => response.status, () => 0))

describe.skipIf(process.env.TEST_DATABASE_URL === undefined || haproxy === undefined)("Behind a balancer", () => {
  it.live(
    "no request is lost while processes are replaced one after the other under load",
    () =>
      Effect.gen(function*() {
        const { key, url } = yield* Workload.database(10)
        const ports = yield* Effect.replicateEffect(
          Effect.all({ port: freePort, management: freePort }),
          2
        )
        const run = ({ management, port }: typeof ports[number]) =>
          start({
            DATABASE_URL: url,
            PORT: String(port),
            MANAGEMENT_PORT: String(management),
            DRAIN_SECONDS: "1",
            LOG_LEVEL: "info"
          })
        const first = yield* Effect.forEach(ports, run)
        const { address, bothUp } = yield* balancer(ports)
        yield* bothUp
        const load = yield* Load.run({ address: () => address, key, callers: 16 })
        for (const [index, service] of first.entries()) {
          const count = load.outcomes.length
          yield* until(() => load.outcomes.length > count + 200)
          service.process.kill("SIGTERM")
          const stoppedAt = performance.now()
          // Readiness fails first, while the process still serves requests.
          const own = ports[index] ?? { port: 0, management: 0 }
          yield* Effect.repeat(status(`http://127.0.0.1:${own.management}/readyz`), { until: (code) => code === 503 })
          assert.strictEqual(yield* status(`http://127.0.0.1:${own.port}/v1/pets`), 401)
          assert.strictEqual(yield* Effect.promise(() => service.exit), 0)
          assert.isBelow(performance.now() - stoppedAt, 10_000)
          yield* run(own)
          yield* bothUp
        }
        const count = load.outcomes.length
        yield* until(() => load.outcomes.length > count + 200)
        yield* load.stop
        const failed = load.outcomes.filter(({ status }) => status !== 200 && status !== 201)
        assert.deepStrictEqual(failed, [])
      }),
    60_000
  )
})

describe("A process that receives SIGTERM", () => {
  it.live(
    "closes idle connections, and exits within ten seconds while clients send nothing",
    () =>
      Effect.gen(function*() {
        const DATA_DIR = yield* dataDirectory
        const service = yield* start({ DATA_DIR })
        const open = (sent: string) => {
          const socket = connect(Number(new URL(service.address).port), "127.0.0.1")
          let closed = false
          socket.on("error", () => {}).on("close", () => {
            closed = true
          }).resume()
          socket.write(sent)
          return { isClosed: () => closed }
        }
        const idle = open("GET /v1/pets HTTP/1.1\r\nHost: x\r\n\r\n")
        yield* until(() => service.stdout().includes("psk_"))
        const key = /psk_\w+/.exec(service.stdout())?.[0] ?? ""
        const head = "POST /v1/pets HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nContent-Type: application/json\r\n"
        const silent = [open(`${head}\r\n{`), open(`${head}Authorization: Bearer ${key}\r\n\r\n{`)]
        yield* Effect.sleep("500 millis")
        const stoppedAt = performance.now()
        service.process.kill("SIGTERM")
        yield* until(idle.isClosed)
        assert.isBelow(performance.now() - stoppedAt, 2_000)
        assert.strictEqual(yield* Effect.promise(() => service.exit), 0)
        assert.isBelow(performance.now() - stoppedAt, 10_000)
        for (const { isClosed } of silent) yield* until(isClosed)
        // Requests that were cut off are logged with 499.
        assert.match(service.stderr(), /"status":499/)
      }),
    30_000
  )
})
