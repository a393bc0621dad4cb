/** Tests the telemetry that the service exports to an OpenTelemetry collector over OTLP. */
import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Context, Effect, Exit, Layer, Option, Tracer } from "effect"
import { text } from "node:stream/consumers"
import { describeCause as describeCause } from "../../src/observability/LogReferences.ts"
import * as Telemetry from "../../src/observability/Telemetry.ts"
import { dataDirectory } from "../support/Databases.ts"
import { adminToken, firstKey, send, serve, start, stop, until } from "../support/Process.ts"
import { silentServer } from "../support/Sockets.ts"

type Span = Readonly<Record<"name" | "traceId" | "spanId", string> & Partial<Record<"parentSpanId", string>>>

/** A collector that accepts every request, and the bodies that it received, one a line, by signal. */
const collector = Effect.gen(function*() {
  const received = { traces: "", metrics: "", logs: "" }
  const url = yield* serve(async (request, response) => {
    const signal = request.url?.slice("/v1/".length) as keyof typeof received
    received[signal] += `${await text(request)}\n`
    response.end("{}")
  })
  return { url, received }
})

const caller = { traceId: "0af7651916cd43dd8448eb211c80319c", spanId: "b7ad6b7169203331" }

const buildWith = (env: Readonly<Record<string, string>>) =>
  Layer.build(Layer.provide(Telemetry.layer, ConfigProvider.layer(ConfigProvider.fromUnknown(env))))

describe("OpenTelemetry", () => {
  it.live("adds a request and its statements to the caller's trace, without a secret", () =>
    Effect.gen(function*() {
      const { received, url } = yield* collector
      const own = { DATA_DIR: yield* dataDirectory, ENVIRONMENT: "staging" }
      const service = yield* start({ ...own, OTEL_EXPORTER_OTLP_ENDPOINT: url })
      const key = yield* firstKey(service)
      const traced = { traceparent: `00-${caller.traceId}-${caller.spanId}-01` }
      yield* send(`${service.address}/v1/pets`, key, "POST", { name: "Rex", categoryId: 1 }, traced)
      yield* send(`${service.address}/v1/pets?limit=3&sort=secret-in-query`, key, "GET", undefined, traced)
      yield* send(`${service.management}/admin/keys`, adminToken, "GET", undefined, traced)
      assert.strictEqual(yield* stop(service, "SIGTERM"), 0)

      const { logs, metrics, traces } = received
      const spans: Array<Span> = []
      for (const body of traces.trim().split("\n")) {
        JSON.parse(body, (name, value: ReadonlyArray<Span>) => name === "spans" ? spans.push(...value) : value)
      }
      const pathOf = ({ name, parentSpanId, traceId }: Span): string => {
        if (traceId !== caller.traceId) return name
        const parent = spans.find(({ spanId }) => spanId === parentSpanId)
        return `${parent === undefined ? "caller" : pathOf(parent)} > ${name}`
      }
      assert.includeMembers(spans.map(pathOf), [
        "caller > POST",
        "caller > POST > ApiKeys.lookup > postgres",
        "caller > POST > PetRepository.create > postgres",
        "caller > GET",
        "caller > GET > PetRepository.list > postgres"
      ])
      for (const name of ["http.route", "http.response.status_code", "db.query.text", "service.name", "limit=3"]) {
        assert.include(traces, name)
      }
      const [, requestId = "none"] = /"requestId":"([^"]+)","traceId":"0af7651916cd43dd8448eb211c80319c"/
        .exec(service.stderr()) ?? []
      assert.include(traces, `{"key":"petstore.request.id","value":{"stringValue":"${requestId}"}}`)
      const units = [
        ["petstore_http_server_request_duration_seconds", "s"],
        ["petstore_ready", "1"],
        ["petstore_build_info", "1"],
        ["process_resident_memory_bytes", "By"],
        ["nodejs_gc_duration_seconds_total", "s"]
      ]
      for (const [name, unit] of units) {
        assert.match(metrics, new RegExp(`"name":"${name}","description":"[^"]+","unit":"${unit}"`))
      }
      assert.include(logs, "Listening on")
      const attribute = (name: string, value: string) => `{"key":"${name}","value":{"stringValue":"${value}`
      for (const signal of [logs, metrics, traces]) {
        assert.include(signal, attribute("service.version", "1.0.0"))
        assert.include(signal, attribute("deployment.environment.name", "staging"))
        assert.match(signal, new RegExp(attribute("service.instance.id", "[\\da-f-]{36}").replaceAll("{\"", "\\{\"")))
      }
      for (const secret of ["secret-in-query", "http.request.header", key.slice(4), adminToken]) {
        assert.notInclude(traces + metrics + logs + service.stderr(), secret)
      }
    }))

  it.live("delays neither requests nor the shutdown while the collector does not respond", () =>
    Effect.gen(function*() {
      const service = yield* start({
        DATA_DIR: yield* dataDirectory,
        OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${(yield* silentServer).port}`,
        // Nothing listens on this port.
        OTEL_EXPORTER_OTLP_LOGS_ENDPOINT: "http://127.0.0.1:1",
        OTEL_BSP_MAX_EXPORT_BATCH_SIZE: "1"
      })
      const list = send(`${service.address}/v1/pets`, yield* firstKey(service))
      for (let i = 0; i < 20; i++) assert.strictEqual((yield* list).status, 200)
      const signalledAt = performance.now()
      assert.strictEqual(yield* stop(service, "SIGTERM"), 0)
      assert.isBelow(performance.now() - signalledAt, 3_000)
    }))

  it.live("drops batches beyond four, and ends each after OTEL_EXPORTER_OTLP_TIMEOUT, while the collector is silent", () =>
    Effect.gen(function*() {
      const { connections, port } = yield* silentServer
      const env = {
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `http://127.0.0.1:${port}`,
        OTEL_EXPORTER_OTLP_TIMEOUT: "500",
        OTEL_BSP_MAX_EXPORT_BATCH_SIZE: "1"
      }
      const tracer = Context.get(yield* buildWith(env), Tracer.Tracer)
      for (let i = 0; i < 50; i++) startSpan(tracer).end(1n, Exit.void)
      yield* until(() => connections.accepted > 0 && connections.open === 0).pipe(
        Effect.timeoutOrElse({ duration: "5 seconds", orElse: () => Effect.die("The exports have not ended") })
      )
      assert.strictEqual(connections.accepted, 4)
      // After the failure, the exporter drops everything for a minute.
      startSpan(tracer).end(1n, Exit.void)
      yield* Effect.sleep("300 millis")
      assert.strictEqual(connections.accepted, 4)
    }))

  it.effect("names a variable whose value is invalid, without the value", () =>
    Effect.gen(function*() {
      const env = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://h", OTEL_EXPORTER_OTLP_TIMEOUT: "secret" }
      const cause = yield* Effect.flip(Effect.sandbox(Effect.scoped(buildWith(env))))
      assert.match(describeCause(cause), /^OTEL_EXPORTER_OTLP_TIMEOUT: expected/)
      assert.notInclude(describeCause(cause), "secret")
    }))

  /** Starts a span in the trace of a caller who has decided whether it is sampled, or in a new trace. */
  const startSpan = (tracer: Tracer.Tracer, sampled?: boolean) =>
    tracer.span({
      name: "span",
      parent: Option.map(Option.fromUndefinedOr(sampled), (sampled) => Tracer.externalSpan({ ...caller, sampled })),
      annotations: Context.empty(),
      links: [],
      startTime: 0n,
      kind: "server",
      root: sampled === undefined,
      sampled: sampled ?? true
    })

  it("samples a trace as the caller decided, and other traces by the configured share", () => {
    const isExported = (ratio: number, sampled?: boolean) =>
      startSpan(Telemetry.restrict(Tracer.nativeTracer, ratio), sampled).sampled
    const decisions = [isExported(1), isExported(0), isExported(0, true), isExported(1, false)]
    assert.deepStrictEqual(decisions, [true, false, true, false])
  })

  it("hides secrets in span attributes, including percent-encoded ones, and cuts long values", () => {
    const span = startSpan(Telemetry.restrict(Tracer.nativeTracer, 1))
    span.attribute("url.path", `/ps%6b%5F${"a".repeat(38)}`)
    span.attribute("url.full", `http://h/psk%255F${"a".repeat(38)}`)
    span.attribute("url.query", "a".repeat(16_000))
    span.attribute("user_agent.original", `curl adm_${"b".repeat(32)}`)
    span.attribute("http.response.status_code", 404)
    assert.deepStrictEqual(Object.fromEntries(span.attributes), {
      "url.path": "/psk_…",
      "url.full": "http://h/psk_…",
      "url.query": "a".repeat(3_000),
      "user_agent.original": "curl adm_…",
      "http.response.status_code": 404
    })
  })
})
