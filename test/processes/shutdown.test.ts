/** Graceful shutdown and replacement of processes, behind a real balancer and under load. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { writeFileSync } from "node:fs"
import { connect } from "node:net"
import { join } from "node:path"
import { dataDirectory, temporaryDatabaseUrl } from "../support/Databases.ts"
import { readPage } from "../support/Documents.ts"
import * as Load from "../support/Load.ts"
import { issue, portOf, runProgram, send, start, stop, until, untilListening, untilTrue } from "../support/Process.ts"
import { haproxy } from "../support/setup.ts"
import { freePort, temporaryDirectory } from "../support/Temporary.ts"

type Server = Readonly<Record<"port" | "management", number>>

/** Runs haproxy with `deploy/haproxy.cfg` in front of two processes. `bothUp` waits until it sends requests to both. */
const runBalancer = Effect.fnUntraced(function*(servers: ReadonlyArray<Server>) {
  const [port, statsPort, metricsPort] = [yield* freePort, yield* freePort, yield* freePort]
  const file = join(yield* temporaryDirectory, "haproxy.cfg")
  const text = servers.reduce(
    (config, { management, port }, index) =>
      config.replace(`petstore-${index + 1}:8080 check port 9090`, `127.0.0.1:${port} check port ${management}`),
    readPage("deploy/haproxy.cfg").replace("bind :8080", `bind 127.0.0.1:${port}`).replace("8405", String(metricsPort))
  )
  writeFileSync(file, `${text}\nlisten stats\n  bind 127.0.0.1:${statsPort}\n  stats enable\n  stats uri /\n`)
  yield* runProgram(haproxy ?? "", ["-db", "-f", file])
  const isUp = Effect.promise(async () => {
    const csv = await fetch(`http://127.0.0.1:${statsPort}/;csv`).then((response) => response.text(), () => "")
    return csv.match(/^petstore,petstore-\d,.*,UP,/gm)?.length === 2
  })
  /** The number of responses with 503 and other 5xx that haproxy has counted. */
  const failures = Effect.map(send(`http://127.0.0.1:${metricsPort}/metrics`, ""), ({ text }) => {
    const [, count] = /^haproxy_frontend_http_responses_total\{proxy="petstore",code="5xx"\} (\d+)/m.exec(text) ?? []
    return Number(count)
  })
  return { address: `http://127.0.0.1:${port}`, bothUp: untilTrue(isUp), failures }
})

const statusOf = (url: string) => Effect.map(send(url, ""), ({ status }) => status)

describe.skipIf(process.env.TEST_DATABASE_URL === undefined || haproxy === undefined)("Behind a balancer", () => {
  it.live("no request is lost while processes are replaced one by one under load", () =>
    Effect.gen(function*() {
      const DATABASE_URL = yield* temporaryDatabaseUrl
      const servers = yield* Effect.replicateEffect(Effect.all({ port: freePort, management: freePort }), 2)
      const run = ({ management, port }: Server) =>
        start({ DATABASE_URL, PORT: String(port), MANAGEMENT_PORT: String(management), DRAIN_SECONDS: "5" })
      const { address, bothUp, failures } = yield* runBalancer(servers)
      yield* untilListening(portOf({ address }))
      const { body, headers, status } = yield* send(`${address}/v1/pets`, "")
      assert.deepStrictEqual([status, body.code, headers.get("retry-after")], [503, "service_unavailable", "1"])
      assert.strictEqual(yield* failures, 1)
      const processes = yield* Effect.forEach(servers, run)
      yield* bothUp
      const { key } = yield* issue(processes[0] ?? assert.fail("there is no process"))
      yield* Load.request(address, key)
      const load = yield* Load.run({ address: () => address, key, callers: 16 })
      for (const [index, { address, exit, management, process }] of processes.entries()) {
        yield* load.untilMore(200)
        process.kill("SIGTERM")
        // Readiness fails first, while the process still serves requests.
        yield* untilTrue(Effect.map(statusOf(`${management}/readyz`), (status) => status === 503))
        assert.strictEqual(yield* statusOf(`${address}/v1/pets`), 401)
        assert.strictEqual(yield* Effect.promise(() => exit), 0)
        yield* run(servers[index] ?? assert.fail("there is no server"))
        yield* bothUp
      }
      yield* load.untilMore(200)
      yield* load.stop
      assert.deepStrictEqual(load.outcomes.filter(({ status }) => status !== 200 && status !== 201), [])
    }))
})

describe("A process that receives SIGTERM", () => {
  it.live("closes idle connections, logs unfinished requests with 499, and exits", () =>
    Effect.gen(function*() {
      const service = yield* start({ DATA_DIR: yield* dataDirectory })
      const closed: Array<string> = []
      const open = (name: string, sent: string) =>
        Effect.callback<void>((resume) => {
          const socket = connect(portOf(service), "127.0.0.1")
          socket.on("error", () => {}).on("close", () => void closed.push(name)).resume()
          socket.write(sent, () => resume(Effect.void))
        })
      const head = "POST /v1/pets HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nContent-Type: application/json\r\n"
      const { key } = yield* issue(service)
      yield* open("silent", `${head}\r\n{`)
      yield* open("silent", `${head}Authorization: Bearer ${key}\r\n\r\n{`)
      yield* open("idle", "GET /v1/pets HTTP/1.1\r\nHost: x\r\n\r\n")
      // This response follows the start of the requests before it.
      yield* statusOf(`${service.address}/v1/pets`)
      assert.strictEqual(yield* stop(service, "SIGTERM"), 0)
      yield* until(() => closed.length === 3)
      assert.deepStrictEqual(closed, ["idle", "silent", "silent"])
      assert.match(service.stderr(), /"status":499/)
    }))
})
