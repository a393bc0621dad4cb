/** Tests the telemetry that the service exports to an OpenTelemetry collector over OTLP. */
import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Context, Effect, Layer, Option, Tracer } from "effect"
import { describe as describeCause } from "../../src/observability/LogLines.ts"
import * as Telemetry from "../../src/observability/Telemetry.ts"
import { dataDirectory } from "../support/Harness.ts"
import * as HttpServer from "../support/HttpServer.ts"
import { type Running, start, until } from "../support/Process.ts"

interface Span {
  readonly name: string
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
}

interface TracesBody {
  readonly resourceSpans: ReadonlyArray<{
    readonly scopeSpans: ReadonlyArray<{ readonly spans: ReadonlyArray<Span> }>
  }>
}

/** A collector that accepts every request, and the bodies that it received, one a line, by signal. */
const collector = Effect.gen(function*() {
  const received = { traces: "", metrics: "", logs: "" }
  const url = yield* HttpServer.serve((request, response) => {
    const signal = request.url?.slice("/v1/".length) as keyof typeof received
    let body = ""
    request.setEncoding("utf8").on("data", (chunk: string) => {
      body += chunk
    }).on("end", () => {
      received[signal] += `${body}\n`
      response.end("{}")
    })
  })
  return { url, received }
})

const caller = { traceId: "0af7651916cd43dd8448eb211c80319c", spanId: "b7ad6b7169203331" }

const call = (address: string, key: string, path: string, init: RequestInit = {}) =>
  Effect.promise(() =>
    fetch(address + path, {
      ...init,
      headers: {
        authorization: `Bearer ${key}`,
        "content-type": "application/json",
        traceparent: `00-${caller.traceId}-${caller.spanId}-01`
      }
    })
  )

const startWithKey = Effect.fnUntraced(function*(env: Readonly<Record<string, string>>) {
  const service = yield* start({ ...env, DATA_DIR: yield* dataDirectory })
  yield* until(() => service.stdout().includes("psk_"))
  return { service, key: /psk_\w+/.exec(service.stdout())?.[0] ?? "" }
})

/** Ends the service gracefully. It flushes pending telemetry before. */
const stop = (service: Running) =>
  Effect.promise(async () => {
    service.process.kill("SIGTERM")
    assert.strictEqual(await service.exit, 0)
  })

describe("OpenTelemetry", () => {
  it.live("explains a request in the caller's trace, down to the statements, without a secret", () =>
    Effect.gen(function*() {
      const { received, url } = yield* collector
      const ADMIN_TOKEN = "adm_0123456789abcdefghijklmnopqrstuvwxyz"
      const { key, service } = yield* startWithKey({ ADMIN_TOKEN, OTEL_EXPORTER_OTLP_ENDPOINT: url })
      yield* call(service.address, key, "/v1/pets", { method: "POST", body: `{"name":"Rex","categoryId":1}` })
      yield* call(service.address, key, "/v1/pets?limit=3&key=secret-in-query")
      yield* call(service.management, ADMIN_TOKEN, "/admin/keys")
      yield* stop(service)

      const { logs, metrics, traces } = received
      const bodies: ReadonlyArray<TracesBody> = traces.trim().split("\n").map((body) => JSON.parse(body))
      const spans = bodies.flatMap((body) => body.resourceSpans.flatMap((resource) => resource.scopeSpans))
        .flatMap((scope) => scope.spans)
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
      assert.include(metrics, `"http.server.request.duration"`)
      assert.include(logs, "Listening on")
      for (const secret of ["secret-in-query", "http.request.header", key.slice(4), ADMIN_TOKEN]) {
        assert.notInclude(traces + metrics + logs + service.stderr(), secret)
      }
    }))

  it.live("serves requests and shuts down as usual while the collector does not respond", () =>
    Effect.gen(function*() {
      const { key, service } = yield* startWithKey({ OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1" })
      for (let i = 0; i < 20; i++) assert.strictEqual((yield* call(service.address, key, "/v1/pets")).status, 200)
      yield* stop(service)
    }))

  it.effect("names a variable whose value the exporter cannot read, and not the value", () =>
    Effect.gen(function*() {
      const env = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://h", OTEL_EXPORTER_OTLP_TIMEOUT: "secret" }
      const layer = Layer.provide(Telemetry.layer, ConfigProvider.layer(ConfigProvider.fromUnknown(env)))
      const cause = yield* Effect.flip(Effect.sandbox(Effect.scoped(Layer.build(layer))))
      assert.match(describeCause(cause), /^OTEL_EXPORTER_OTLP_TIMEOUT: expected/)
      assert.notInclude(describeCause(cause), "secret")
    }))

  it("exports a trace if the caller decided so, or else the share of all traces", () => {
    const isExported = (ratio: number, parent?: boolean) =>
      Telemetry.sample(Tracer.nativeTracer, ratio).span({
        name: "span",
        parent: Option.map(Option.fromUndefinedOr(parent), (sampled) => Tracer.externalSpan({ ...caller, sampled })),
        annotations: Context.empty(),
        links: [],
        startTime: 0n,
        kind: "server",
        root: parent === undefined,
        sampled: parent ?? true
      }).sampled
    const decisions = [isExported(1), isExported(0), isExported(0, true), isExported(1, false)]
    assert.deepStrictEqual(decisions, [true, false, true, false])
  })
})
