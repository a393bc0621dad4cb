/** Load by wrk, which uses so little CPU that the service is the bottleneck. */
import { Data, Effect, Schema } from "effect"
import { execFile } from "node:child_process"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"

const script = fileURLToPath(new URL("requests.lua", import.meta.url))

/** The 99th percentile of latencies is in milliseconds; `failed` counts errors and responses other than 2xx and 3xx. */
const Measured = Schema.fromJsonString(Schema.Struct({
  requestsPerSecond: Schema.Finite,
  p99: Schema.Finite,
  requests: Schema.Finite,
  failed: Schema.Finite
}))
type Measured = typeof Measured.Type

export class WrkFailed extends Data.TaggedError("WrkFailed")<{ readonly cause: unknown }> {
  override readonly message = "wrk failed; it is in Debian's package wrk."
}

/** Sends the requests of a file in turn (see requests.lua), over connections that each wait for the response. */
export const load = (options: {
  readonly address: string
  readonly requests: string
  readonly keys: string
  readonly connections: number
  readonly seconds: number
}): Effect.Effect<Measured, WrkFailed | Schema.SchemaError> =>
  Effect.tryPromise({
    try: () =>
      promisify(execFile)("wrk", [
        "-t1",
        `-c${options.connections}`,
        `-d${options.seconds}s`,
        "--timeout=10s",
        `-s${script}`,
        options.address,
        "--",
        options.requests,
        options.keys
      ]),
    catch: (cause) => new WrkFailed({ cause })
  }).pipe(
    Effect.flatMap(({ stdout }) => Schema.decodeEffect(Measured)(stdout.trim().split("\n").at(-1) ?? ""))
  )
