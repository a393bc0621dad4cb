/** haproxy, as `deploy` configures it, in front of two processes. */
import { Effect } from "effect"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { runProgram, send, untilListening, untilTrue } from "./Process.ts"
import { haproxy } from "./setup.ts"
import { freePort, temporaryDirectory } from "./Temporary.ts"

/** The metric of a process that passes the checks of the balancer. */
const up = /^haproxy_server_status\{proxy="petstore",server="petstore-\d",state="UP"\} 1$/gm

/** Runs haproxy with a configuration. Returns the settings with which the two processes must start. */
export const run = Effect.fnUntraced(function*(config: string) {
  const newPort = Effect.map(freePort, String)
  const server = Effect.all({ PORT: newPort, MANAGEMENT_PORT: newPort })
  const [port, metricsPort, servers] = [yield* newPort, yield* newPort, [yield* server, yield* server] as const]
  const text = servers.reduce(
    (text, { MANAGEMENT_PORT, PORT }, index) =>
      text.replace(`petstore-${index + 1}:8080 check port 9090`, `127.0.0.1:${PORT} check port ${MANAGEMENT_PORT}`),
    config.replace("bind :8080", `bind 127.0.0.1:${port}`).replace("8405", metricsPort)
  )
  const file = join(yield* temporaryDirectory, "haproxy.cfg")
  writeFileSync(file, text)
  yield* runProgram(haproxy ?? "", ["-db", "-f", file])
  yield* untilListening(Number(port))
  const metrics = Effect.map(send(`http://127.0.0.1:${metricsPort}/metrics`, ""), ({ text }) => text)
  const areBothUp = Effect.map(metrics, (text) => text.match(up)?.length === servers.length)
  return {
    address: `http://127.0.0.1:${port}`,
    metrics,
    servers,
    untilBothUp: untilTrue(areBothUp, "both processes are up", 60)
  }
})
