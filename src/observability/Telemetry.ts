import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Config, ConfigProvider, Effect, Layer, Option, Schedule, Semaphore, Tracer } from "effect"
import { HttpClient, HttpClientResponse } from "effect/http"
import { OtlpLogger, OtlpMetrics, OtlpSerialization, OtlpTracer } from "effect/observability"
import * as Brand from "../api/Brand.ts"
import { redactSecrets } from "../api/Secrets.ts"
import { Settings } from "../config/Settings.ts"
import { serviceVersion } from "./ProcessMetrics.ts"

/** Effect exports nothing by default, even with an OTLP endpoint; these defaults enable all three exporters. */
const defaults = {
  OTEL_SERVICE_NAME: Brand.name,
  OTEL_SERVICE_VERSION: serviceVersion,
  OTEL_TRACES_EXPORTER: "otlp",
  OTEL_METRICS_EXPORTER: "otlp",
  OTEL_LOGS_EXPORTER: "otlp"
}

const maxWaitingBatches = 4

/**
 * Limits the time of each batch, including retries, and the number of batches in flight for each signal. Drops batches
 * beyond that number. Effect's exporter has no timeout except at shutdown, so batches of logs and spans would pile up
 * for a collector that never responds.
 */
const boundedClient = (signal: "LOGS" | "METRICS" | "TRACES") =>
  Layer.effect(
    HttpClient.HttpClient,
    Effect.gen(function*() {
      const timeoutMs = yield* Config.Int(`OTEL_EXPORTER_OTLP_${signal}_TIMEOUT`).pipe(
        Config.orElse(() => Config.Int("OTEL_EXPORTER_OTLP_TIMEOUT")),
        Config.withDefault(10_000)
      )
      const slots = yield* Semaphore.make(maxWaitingBatches)
      return (yield* HttpClient.HttpClient).pipe(
        HttpClient.tap((response) => response.arrayBuffer),
        HttpClient.filterStatusOk,
        HttpClient.retryTransient({ schedule: Schedule.spaced("1 second"), times: 3 }),
        HttpClient.transform((response, request) =>
          Effect.timeout(response, timeoutMs).pipe(
            // Fail with a defect: Effect's exporter would retry an error, even after `timeoutMs`. After a defect, it
            // pauses for a minute.
            Effect.orDie,
            slots.withPermitsIfAvailable(1),
            Effect.map(Option.getOrElse(() => HttpClientResponse.fromWeb(request, new Response())))
          )
        )
      )
    })
  ).pipe(Layer.provide(NodeHttpClient.layerNodeHttp))

const exporters = Layer.mergeAll(
  Layer.provide(OtlpLogger.layerFromConfig(), boundedClient("LOGS")),
  Layer.provide(OtlpMetrics.layerFromConfig(), boundedClient("METRICS")),
  Layer.provide(OtlpTracer.layerFromConfig(), boundedClient("TRACES"))
)

/**
 * The maximum number of characters of a text attribute of a span. It keeps batches small, because a client can send a
 * path or a `User-Agent` of nearly 16 KiB.
 */
const maxAttributeLength = 3_000

export const restrict = (tracer: Tracer.Tracer, ratio: number): Tracer.Tracer =>
  Tracer.make({
    ...tracer,
    span: (options) => {
      const { parent, sampled } = options
      const isSampled = sampled && (Option.isSome(parent) ? parent.value.sampled : Math.random() < ratio)
      const span = tracer.span({ ...options, sampled: isSampled })
      const setAttribute = span.attribute.bind(span)
      span.attribute = (name, value) =>
        setAttribute(name, typeof value === "string" ? redactSecrets(value).slice(0, maxAttributeLength) : value)
      return span
    }
  })

const exported = Layer.effect(
  Tracer.Tracer,
  Effect.gen(function*() {
    const tracer = yield* Tracer.Tracer
    if (tracer === Tracer.nativeTracer) return tracer
    const isRatio = (yield* Settings.otelTracesSampler.config) === "parentbased_traceidratio"
    return restrict(tracer, isRatio ? yield* Settings.otelTracesSamplerRatio.config : 1)
  })
)

/**
 * Adds the defaults, and two resource attributes: the value of `ENVIRONMENT`, and an id of this process, without which
 * all processes would share time series. If `OTEL_RESOURCE_ATTRIBUTES` is set, it replaces both attributes.
 */
const withDefaults = Layer.unwrap(Effect.gen(function*() {
  const environment = yield* Config.withDefault(Settings.environment.config, "none")
  const attributes = `service.instance.id=${crypto.randomUUID()},deployment.environment.name=${environment}`
  return ConfigProvider.layerAdd(ConfigProvider.fromUnknown({ ...defaults, OTEL_RESOURCE_ATTRIBUTES: attributes }))
}))

/**
 * Removes the attribute `unit` from the points of metrics. Effect reads the unit of a metric from it, but also exports
 * it with each point.
 */
const removeUnits = ({ resourceMetrics }: OtlpMetrics.MetricsData): void => {
  const metrics = resourceMetrics.flatMap(({ scopeMetrics }) => scopeMetrics.flatMap((scope) => scope.metrics))
  for (const { gauge, histogram, sum } of metrics) {
    for (const point of [gauge, histogram, sum].flatMap((each) => each?.dataPoints ?? [])) {
      point.attributes = (point.attributes ?? []).filter(({ key }) => key !== "unit")
    }
  }
}

const serialization = Layer.effect(
  OtlpSerialization.OtlpSerialization,
  Effect.map(OtlpSerialization.OtlpSerialization, ({ logs, metrics, traces }) => ({
    traces,
    logs,
    metrics: (data: OtlpMetrics.MetricsData) => {
      removeUnits(data)
      return metrics(data)
    }
  }))
).pipe(Layer.provide(OtlpSerialization.layerJson))

export const layer = exported.pipe(
  Layer.provideMerge(exporters),
  Layer.provide(serialization),
  Layer.provide(withDefaults)
)
