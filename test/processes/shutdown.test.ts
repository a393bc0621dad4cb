/** Graceful shutdown and replacement of processes, behind a real balancer and under load. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { connect } from "node:net"
import * as Balancer from "../support/Balancer.ts"
import { dataDirectory, temporaryDatabaseUrl } from "../support/Databases.ts"
import { readPage } from "../support/Documents.ts"
import * as Load from "../support/Load.ts"
import { issue, portOf, send, start, stop, until, untilListening, untilTrue } from "../support/Process.ts"
import { haproxy } from "../support/setup.ts"

const statusOf = (url: string) => Effect.map(send(url, ""), ({ status }) => status)

const skip = process.env.TEST_DATABASE_URL === undefined || haproxy === undefined

it.live.skipIf(skip)(
  "Behind a load balancer, no request is lost while processes are replaced one by one under load",
  () =>
    Effect.gen(function*() {
      const DATABASE_URL = yield* temporaryDatabaseUrl
      const { address, metrics, servers } = yield* Balancer.run(readPage("deploy/haproxy.cfg"))
      const run = (ports: (typeof servers)[0]) => start({ DATABASE_URL, DRAIN_SECONDS: "5", ...ports })
      const up = /^haproxy_server_status\{proxy="petstore",server="petstore-\d",state="UP"\} 1$/gm
      const untilBothUp = untilTrue(Effect.map(metrics, (text) => text.match(up)?.length === 2))
      yield* untilListening(portOf({ address }))
      const { body, headers, status } = yield* send(`${address}/v1/pets`, "")
      assert.deepStrictEqual([status, body.code, headers.get("retry-after")], [503, "service_unavailable", "1"])
      assert.match(yield* metrics, /^haproxy_frontend_http_responses_total\{proxy="petstore",code="5xx"\} 1$/m)
      const processes = [yield* run(servers[0]), yield* run(servers[1])] as const
      yield* untilBothUp
      const { key } = yield* issue(processes[0])
      yield* Load.request(address, key)
      const load = yield* Load.run({ address: () => address, key, callers: 16 })
      for (const [index, { address, exit, management, process }] of processes.entries()) {
        yield* load.untilMore(200)
        process.kill("SIGTERM")
        // Readiness fails first, while the process still serves requests.
        yield* untilTrue(Effect.map(statusOf(`${management}/readyz`), (status) => status === 503))
        assert.strictEqual(yield* statusOf(`${address}/v1/pets`), 401)
        assert.strictEqual(yield* Effect.promise(() => exit), 0)
        yield* run(servers[index === 0 ? 0 : 1])
        yield* untilBothUp
      }
      yield* load.untilMore(200)
      yield* load.stop
      Load.assertStatuses(load.outcomes, 200, 201)
    })
)

it.live("A process that receives SIGTERM closes idle connections, logs unfinished requests with 499, and exits", () =>
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
