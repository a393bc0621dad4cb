/** Tests the telemetry that the service exports to an OpenTelemetry collector over OTLP. */
import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Context, Effect, Layer, Option, Tracer } from "effect"
import { createServer } from "node:http"
import { describe as describeCause } from "../../src/observability/LogLines.ts"
import * as Telemetry from "../../src/observability/Telemetry.ts"
import { temporaryDirectory } from "../support/Harness.ts"
import { start, until } from "../support/Process.ts"

/** A collector that accepts every request and records the bodies by path. */
const collector = Effect.acquireRelease(
  Effect.promise(() =>
    new Promise<{ readonly url: string; readonly received: ReadonlyMap<string, string>; close(): void }>((resolve) => {
      const received = new Map<string, string>()
      const server = createServer((request, response) => {
        let body = ""
        request.setEncoding("utf8").on("data", (chunk: string) => {
          body += chunk
        }).on("end", () => {
          received.set(request.url ?? "", (received.get(request.url ?? "") ?? "") + body)
          response.end("{}")
        })
      })
      server.listen(0, "127.0.0.1", () => {
        const address = server.address()
        const port = typeof address === "object" && address !== null ? address.port : 0
        resolve({ url: `http://127.0.0.1:${port}`, received, close: () => server.close() })
      })
    })
  ),
  ({ close }) => Effect.sync(close)
)

const traceId = "0af7651916cd43dd8448eb211c80319c"

const call = (address: string, key: string, path: string, init: RequestInit = {}) =>
  Effect.promise(() =>
    fetch(address + path, {
      ...init,
      headers: {
        authorization: `Bearer ${key}`,
        "content-type": "application/json",
        traceparent: `00-${traceId}-b7ad6b7169203331-01`
      }
    })
  )

describe("OpenTelemetry", () => {
  it.live(
    "exports traces in the caller's context, metrics and logs, with OpenTelemetry's names and without a secret",
    () =>
      Effect.gen(function*() {
        const { received, url } = yield* collector
        const DATA_DIR = yield* temporaryDirectory
        const ADMIN_TOKEN = "adm_0123456789abcdefghijklmnopqrstuvwxyz"
        const service = yield* start({ DATA_DIR, ADMIN_TOKEN, OTEL_EXPORTER_OTLP_ENDPOINT: url })
        yield* until(() => service.stdout().includes("psk_"))
        const key = /psk_\w+/.exec(service.stdout())?.[0] ?? ""
        yield* call(service.address, key, "/v1/pets", { method: "POST", body: `{"name":"Rex","categoryId":1}` })
        yield* call(service.address, key, "/v1/pets/1?key=secret-in-query")
        yield* call(service.address, key, "/v1/pets/x")
        yield* call(service.management, ADMIN_TOKEN, "/admin/keys")
        service.process.kill("SIGTERM")
        // The service flushes pending telemetry before it ends.
        assert.strictEqual(yield* Effect.promise(() => service.exit), 0)

        const [traces = "", metrics = "", logs = ""] = ["traces", "metrics", "logs"].map((signal) =>
          received.get(`/v1/${signal}`)
        )
        for (
          const expected of [
            traceId,
            `"service.name"`,
            "http.request.method",
            "http.route",
            "/v1/pets/:petId",
            "http.response.status_code",
            "url.path",
            "db.system.name",
            "db.query.text"
          ]
        ) {
          assert.include(traces, expected)
        }
        // One span for each request, on the fast path (two) and through HttpApi (one).
        assert.lengthOf(traces.match(/"url\.path","value":\{"stringValue":"\/v1\/pets/g) ?? [], 3)
        assert.notInclude(traces, "secret-in-query")
        assert.notInclude(traces, "http.request.header")
        assert.include(metrics, `"http.server.request.duration"`)
        assert.include(metrics, `"http.response.status_code"`)
        assert.include(logs, "Listening on")
        for (const secret of [key.slice(4), ADMIN_TOKEN]) {
          assert.notInclude(traces + metrics + logs + service.stderr(), secret)
        }
      }),
    240_000
  )

  it.live("serves requests and shuts down as usual while the collector does not respond", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      const service = yield* start({ DATA_DIR, OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1" })
      yield* until(() => service.stdout().includes("psk_"))
      const key = /psk_\w+/.exec(service.stdout())?.[0] ?? ""
      for (let i = 0; i < 20; i++) assert.strictEqual((yield* call(service.address, key, "/v1/pets")).status, 200)
      service.process.kill("SIGTERM")
      assert.strictEqual(yield* Effect.promise(() => service.exit), 0)
    }), 120_000)

  it.effect("names a variable whose value the exporter cannot read, and not the value", () =>
    Effect.gen(function*() {
      const env = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://h", OTEL_EXPORTER_OTLP_TIMEOUT: "secret" }
      const cause = yield* Effect.flip(Effect.sandbox(Effect.scoped(Layer.build(
        Layer.provide(Telemetry.layer, ConfigProvider.layer(ConfigProvider.fromUnknown(env)))
      ))))
      assert.match(describeCause(cause), /^OTEL_EXPORTER_OTLP_TIMEOUT: expected/)
      assert.notInclude(describeCause(cause), "secret")
    }))
})

describe("A sampled trace", () => {
  const start = (ratio: number, parent?: boolean, links: ReadonlyArray<boolean> = []) =>
    Telemetry.sample(Tracer.nativeTracer, ratio).span({
      name: "span",
      parent: Option.map(Option.fromUndefinedOr(parent), external),
      annotations: Context.empty(),
      links: links.map((sampled) => ({ span: external(sampled), attributes: {} })),
      startTime: 0n,
      kind: "server",
      root: parent === undefined,
      sampled: parent ?? true
    }).sampled
  const external = (sampled: boolean) =>
    Tracer.externalSpan({ traceId: "1".repeat(32), spanId: "1".repeat(16), sampled })

  it("follows the caller's decision, or one of the requests that it is linked to, or else the ratio", () => {
    assert.isTrue(start(1))
    assert.isFalse(start(0))
    assert.isTrue(start(0, true))
    assert.isFalse(start(1, false))
    assert.isTrue(start(0, undefined, [false, true]))
    assert.isFalse(start(1, undefined, [false]))
  })
})
