import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Context, Effect, Exit, Layer, Option, Scope, Tracer } from "effect"
import { TestClock } from "effect/testing"
import { text } from "node:stream/consumers"
import { closeWithin, maxTelemetryClose } from "../../src/config/Shutdown.ts"
import { describeCause } from "../../src/observability/DescribeCause.ts"
import * as Telemetry from "../../src/observability/Telemetry.ts"
import { dataDirectory, hasServer, temporaryDatabaseUrl } from "../support/Databases.ts"
import { adminToken, firstKey, issue, send, serve, start, stop, until } from "../support/Process.ts"

type Span = Readonly<Record<"name" | "traceId" | "spanId", string> & Partial<Record<"parentSpanId", string>>>

const caller = { traceId: "0af7651916cd43dd8448eb211c80319c", spanId: "b7ad6b7169203331" }

/** A collector that never responds. Returns its URL and the numbers of its requests. */
const silentCollector = Effect.gen(function*() {
  const requests = { accepted: 0, open: 0 }
  const url = yield* serve((request, response) => {
    requests.accepted++
    requests.open++
    request.resume()
    response.on("close", () => requests.open--)
  })
  return { url, requests }
})

const buildWith = (env: Readonly<Record<string, string>>, layer = Telemetry.layer) =>
  Layer.build(Layer.provide(layer, ConfigProvider.layer(ConfigProvider.fromUnknown(env))))

/** Ends the waits for a silent collector at the end of a test, so that a failed one does not hang. */
const endWaits = Effect.addFinalizer(() => TestClock.adjust("1 minute"))

describe("OpenTelemetry", { concurrent: true }, () => {
  it.live("adds a request and its statements to the caller's trace, without a secret", () =>
    Effect.gen(function*() {
      /** The bodies that the collector received, one a line, by signal. */
      const received = { traces: "", metrics: "", logs: "" }
      const url = yield* serve(async (request, response) => {
        received[request.url?.slice("/v1/".length) as keyof typeof received] += `${await text(request)}\n`
        response.end("{}")
      })
      const own = { DATA_DIR: yield* dataDirectory, ENVIRONMENT: "staging" }
      const service = yield* start({ ...own, OTEL_EXPORTER_OTLP_ENDPOINT: url })
      const key = yield* firstKey(service)
      const traced = { traceparent: `00-${caller.traceId}-${caller.spanId}-01` }
      yield* send(`${service.address}/v1/pets`, key, "POST", { name: "Rex", categoryId: 1 }, traced)
      for (const path of ["/1", "?limit=3&status=sold&cursor=MQ&sort=secret-in-query&limited=secret-in-query"]) {
        yield* send(`${service.address}/v1/pets${path}`, key, "GET", undefined, traced)
      }
      yield* send(`${service.management}/admin/keys`, adminToken, "GET", undefined, traced)
      const probes = ["/healthz", "/readyz", "/readyz?a", "/metrics"]
      for (const path of probes) yield* send(`${service.management}${path}`, "", "GET", undefined, traced)
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
      const [post, get, list] = ["POST /v1/pets", "GET /v1/pets/:petId", "GET /v1/pets"]
      const ofPost = [post, `${post} > ApiKeys.lookup > postgres`, `${post} > pets.create > postgres`]
      const ofGets = [get, `${get} > pets.find > postgres`, `${list} > pets.list > postgres`]
      assert.includeMembers(
        spans.map(pathOf),
        [...ofPost, ...ofGets, "GET /admin/keys"].map((path) => `caller > ${path}`)
      )
      const ofRequest = ["http.route", "http.response.status_code", "url.full", "client.address", "user_agent.original"]
      const names = [...ofRequest, "db.query.text"]
      for (const name of [...names, "limit=3", "status=sold", "cursor=MQ"]) assert.include(traces, name)
      const [, requestId = "none"] = /"requestId":"([^"]+)","traceId":"0af7651916cd43dd8448eb211c80319c"/
        .exec(service.stderr()) ?? []
      const [, keyId = "none"] = /"keyId":"(key_\w+)"/.exec(service.stderr()) ?? []
      assert.include(traces, `{"key":"petstore.key.id","value":{"stringValue":"${keyId}"}}`)
      assert.isTrue(probes.every((path) => !traces.includes(path)), "probes and scrapes have no spans")
      assert.notInclude(metrics, `{"key":"unit"`)
      assert.include(traces, `{"key":"petstore.request.id","value":{"stringValue":"${requestId}"}}`)
      const units = {
        petstore_http_server_request_duration_seconds: "s",
        petstore_ready: "1",
        petstore_build_info: "1",
        petstore_background_failures_total: "1",
        process_cpu_seconds_total: "s",
        process_start_time_seconds: "s",
        process_resident_memory_bytes: "By",
        nodejs_heap_size_used_bytes: "By",
        nodejs_external_memory_bytes: "By",
        nodejs_eventloop_lag_p50_seconds: "s",
        nodejs_eventloop_lag_p99_seconds: "s",
        nodejs_gc_duration_seconds_total: "s"
      }
      for (const [name, unit] of Object.entries(units)) {
        assert.match(metrics, new RegExp(`"name":"${name}","description":"[^"]+","unit":"${unit}"`))
      }
      assert.include(logs, "Listening on")
      assert.include(logs, requestId, "the line of a request")
      const attribute = (name: string, value: string) => `{"key":"${name}","value":{"stringValue":"${value}"}}`
      const [, instanceId = "none"] = /"service.instance.id","value":\{"stringValue":"([\da-f-]{36})"/.exec(logs) ?? []
      for (const signal of [logs, metrics, traces]) {
        assert.include(signal, attribute("service.name", "petstore"))
        assert.include(signal, attribute("service.version", "1.0.0"))
        assert.include(signal, attribute("deployment.environment.name", "staging"))
        assert.include(signal, attribute("service.instance.id", instanceId))
      }
      for (const secret of ["secret-in-query", "http.request.header", key.slice(4), adminToken]) {
        assert.notInclude(traces + metrics + logs + service.stderr(), secret)
      }
    }))

  it.live("delays neither requests nor the shutdown while the collector does not respond", () =>
    Effect.gen(function*() {
      const { url } = yield* silentCollector
      // Nothing listens on port 1.
      const urls = { OTEL_EXPORTER_OTLP_ENDPOINT: url, OTEL_EXPORTER_OTLP_LOGS_ENDPOINT: "http://127.0.0.1:1" }
      const env = { ...urls, OTEL_EXPORTER_OTLP_TIMEOUT: "20000", OTEL_BSP_MAX_EXPORT_BATCH_SIZE: "1" }
      // The embedded database takes seconds to start and to close.
      const database = hasServer ? { DATABASE_URL: yield* temporaryDatabaseUrl } : { DATA_DIR: yield* dataDirectory }
      const service = yield* start({ ...database, ...env })
      const list = send(`${service.address}/v1/pets`, (yield* issue(service)).key)
      for (let i = 0; i < 20; i++) assert.strictEqual((yield* list).status, 200)
      const signalledAt = performance.now()
      assert.strictEqual(yield* stop(service, "SIGTERM"), 0)
      // By themselves, the exporters would wait for 20 seconds.
      assert.isBelow(performance.now() - signalledAt, 10_000)
    }))

  it.effect("waits for the collector for one second when it ends", () =>
    Effect.gen(function*() {
      const { requests, url } = yield* silentCollector
      const env = { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: url, OTEL_BSP_MAX_EXPORT_BATCH_SIZE: "1" }
      const scope = yield* Scope.make()
      const context = yield* Scope.provide(buildWith(env, closeWithin(maxTelemetryClose)(Telemetry.layer)), scope)
      startSpan(Context.get(context, Tracer.Tracer)).end(1n, Exit.void)
      yield* until(() => requests.open > 0)
      const closing = yield* Effect.forkChild(Scope.close(scope, Exit.void), { startImmediately: true })
      yield* endWaits
      yield* TestClock.adjust("999 millis")
      assert.isUndefined(closing.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      assert.isDefined(closing.pollUnsafe())
    }))

  it.effect("drops batches beyond four, and ends each after OTEL_EXPORTER_OTLP_TIMEOUT, while the collector is silent", () =>
    Effect.gen(function*() {
      const { requests, url } = yield* silentCollector
      const bounds = { OTEL_EXPORTER_OTLP_TIMEOUT: "500", OTEL_BSP_MAX_EXPORT_BATCH_SIZE: "1" }
      const env = { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: url, ...bounds }
      const tracer = Context.get(yield* buildWith(env), Tracer.Tracer)
      yield* endWaits
      for (let i = 0; i < 50; i++) startSpan(tracer).end(1n, Exit.void)
      yield* until(() => requests.open === 4)
      yield* TestClock.adjust("499 millis")
      assert.strictEqual(requests.open, 4)
      yield* TestClock.adjust("1 millis")
      yield* until(() => requests.open === 0)
      // After the failure, the exporter drops everything for a minute.
      startSpan(tracer).end(1n, Exit.void)
      yield* TestClock.withLive(Effect.sleep("300 millis"))
      assert.strictEqual(requests.accepted, 4)
    }))

  it.effect.each(["TRACES", "METRICS", "LOGS"])(
    "ends a batch after OTEL_EXPORTER_OTLP_%s_TIMEOUT",
    (signal) =>
      Effect.gen(function*() {
        const { requests, url } = yield* silentCollector
        const variable = `OTEL_EXPORTER_OTLP_${signal}`
        const sizes = { OTEL_BSP_MAX_EXPORT_BATCH_SIZE: "1", OTEL_BLRP_MAX_EXPORT_BATCH_SIZE: "1" }
        const own = { [`${variable}_ENDPOINT`]: url, [`${variable}_TIMEOUT`]: "300" }
        const context = yield* buildWith({ ...own, ...sizes, OTEL_METRIC_EXPORT_INTERVAL: "100" })
        startSpan(Context.get(context, Tracer.Tracer)).end(1n, Exit.void)
        yield* Effect.provideContext(Effect.logInfo("exported"), context)
        yield* TestClock.adjust("100 millis")
        yield* until(() => requests.open > 0)
        yield* TestClock.adjust("300 millis")
        yield* until(() => requests.open === 0)
      })
  )

  it.effect("ends a batch after ten seconds by default", () =>
    Effect.gen(function*() {
      const { requests, url } = yield* silentCollector
      const env = { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: url, OTEL_BSP_MAX_EXPORT_BATCH_SIZE: "1" }
      startSpan(Context.get(yield* buildWith(env), Tracer.Tracer)).end(1n, Exit.void)
      yield* endWaits
      yield* until(() => requests.open > 0)
      yield* TestClock.adjust("9999 millis")
      assert.strictEqual(requests.open, 1)
      yield* TestClock.adjust("1 millis")
      yield* until(() => requests.open === 0)
    }))

  it.effect("names a variable whose value is invalid, without the value", () =>
    Effect.gen(function*() {
      const env = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://h", OTEL_EXPORTER_OTLP_TIMEOUT: "secret" }
      const cause = describeCause(yield* Effect.flip(Effect.sandbox(Effect.scoped(buildWith(env)))))
      assert.match(cause, /^OTEL_EXPORTER_OTLP_TIMEOUT: expected/)
      assert.notInclude(cause, "secret")
    }))

  /**
   * Starts a span that asks to be sampled, in the trace of a caller who has decided whether it is sampled, or in a new
   * trace.
   */
  const startSpan = (tracer: Tracer.Tracer, sampled?: boolean) => {
    const parent = Option.map(Option.fromUndefinedOr(sampled), (sampled) => Tracer.externalSpan({ ...caller, sampled }))
    const own = { name: "span", annotations: Context.empty(), startTime: 0n, kind: "server" } as const
    return tracer.span({ ...own, links: [], parent, root: sampled === undefined, sampled: true })
  }

  it.effect("prefers the service's name, version and resource attributes in the environment to its own", () =>
    Effect.gen(function*() {
      const received: Array<string> = []
      const url = yield* serve(async (request, response) => {
        received.push(await text(request))
        response.end("{}")
      })
      const own = { OTEL_SERVICE_NAME: "shop", OTEL_SERVICE_VERSION: "7", OTEL_RESOURCE_ATTRIBUTES: "team=pets" }
      const env = { ...own, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: url, OTEL_BSP_MAX_EXPORT_BATCH_SIZE: "1" }
      startSpan(Context.get(yield* buildWith(env), Tracer.Tracer)).end(1n, Exit.void)
      yield* endWaits
      yield* until(() => received.length > 0)
      for (const [name, value] of [["service.name", "shop"], ["service.version", "7"], ["team", "pets"]]) {
        assert.include(received.join(), `{"key":"${name}","value":{"stringValue":"${value}"}}`)
      }
    }))

  it.effect.each([["OTEL_TRACES_EXPORTER", "none"], ["OTEL_SDK_DISABLED", "true"]] as const)(
    "exports no traces with %s=%s",
    ([name, value]) =>
      Effect.gen(function*() {
        const url = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1" }
        const isExported = (env: Readonly<Record<string, string>>) =>
          Effect.map(
            Effect.scoped(buildWith({ ...url, ...env })),
            (context) => Context.get(context, Tracer.Tracer) !== Tracer.nativeTracer
          )
        const others = { OTEL_METRICS_EXPORTER: "none", OTEL_LOGS_EXPORTER: "none" }
        const exported = [yield* isExported(others), yield* isExported({ ...others, [name]: value })]
        assert.deepStrictEqual(exported, [true, false])
      })
  )

  const ratio = "parentbased_traceidratio"
  it.live.each<readonly [sampler: string, share: string, decided: boolean | undefined, isSampled: boolean]>([
    [ratio, "1", undefined, true],
    [ratio, "0", undefined, false],
    [ratio, "0", true, true],
    [ratio, "1", false, false],
    ["parentbased_always_on", "0", undefined, true]
  ])("samples with %s and the share %s, if the caller decided %s: %s", (row) =>
    Effect.gen(function*() {
      const [sampler, share, decided, isSampled] = row
      const own = { OTEL_TRACES_SAMPLER: sampler, OTEL_TRACES_SAMPLER_ARG: share }
      const context = yield* buildWith({ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "http://127.0.0.1:1", ...own })
      assert.strictEqual(startSpan(Context.get(context, Tracer.Tracer), decided).sampled, isSampled)
    }))

  it("hides secrets in span attributes, including percent-encoded ones, and cuts long values", () => {
    const span = startSpan(Telemetry.restrict(Tracer.nativeTracer, 1))
    const values = [
      ["url.path", `/ps%6b%5F${"a".repeat(38)}`, "/psk_…"],
      ["url.full", `http://h/psk%255F${"a".repeat(38)}`, "http://h/psk_…"],
      ["url.query", "a".repeat(16_000), "a".repeat(3_000)],
      ["user_agent.original", `curl adm_${"b".repeat(32)}`, "curl adm_…"],
      ["http.response.status_code", 404, 404]
    ] as const
    for (const [name, value] of values) span.attribute(name, value)
    const exported = Object.fromEntries(values.map(([name, , text]) => [name, text]))
    assert.deepStrictEqual(Object.fromEntries(span.attributes), exported)
  })
})
