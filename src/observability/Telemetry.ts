/** Exports traces, metrics and logs over OTLP, as OpenTelemetry's environment variables configure. */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Config, ConfigProvider, Effect, Layer, Option, Tracer } from "effect"
import { Otlp, OtlpSerialization } from "effect/observability"
import { Settings } from "../config/Settings.ts"
import { redactSecrets } from "./LogText.ts"
import { serviceVersion } from "./ProcessMetrics.ts"

/** By default, Effect exports nothing, even if an OTLP endpoint is set. These values enable all exporters. */
const defaults = {
  OTEL_SERVICE_NAME: "petstore",
  OTEL_SERVICE_VERSION: serviceVersion,
  OTEL_TRACES_EXPORTER: "otlp",
  OTEL_METRICS_EXPORTER: "otlp",
  OTEL_LOGS_EXPORTER: "otlp"
}

type SpanOptions = Parameters<Tracer.Tracer["span"]>[0]

const isSampled = ({ parent, sampled }: SpanOptions, ratio: number): boolean =>
  sampled && (Option.isSome(parent) ? parent.value.sampled : Math.random() < ratio)

export const sample = (tracer: Tracer.Tracer, ratio: number): Tracer.Tracer =>
  Tracer.make({ ...tracer, span: (options) => tracer.span({ ...options, sampled: isSampled(options, ratio) }) })

/** Redacts secrets in span attributes, because a client can send one in a path or a `User-Agent`. */
export const redact = (tracer: Tracer.Tracer): Tracer.Tracer =>
  Tracer.make({
    ...tracer,
    span: (options) => {
      const span = tracer.span(options)
      const setAttribute = span.attribute.bind(span)
      span.attribute = (name, value) => setAttribute(name, typeof value === "string" ? redactSecrets(value) : value)
      return span
    }
  })

const exported = Layer.effect(
  Tracer.Tracer,
  Effect.gen(function*() {
    const tracer = yield* Tracer.Tracer
    if (tracer === Tracer.nativeTracer) return tracer
    const isRatio = (yield* Settings.otelTracesSampler.config) === "parentbased_traceidratio"
    const redacted = redact(tracer)
    return isRatio ? sample(redacted, yield* Settings.otelTracesSamplerRatio.config) : redacted
  })
)

/** Without its own id, the metrics of each process would be the same series. */
const withDefaults = Layer.unwrap(Effect.gen(function*() {
  const environment = yield* Config.withDefault(Settings.environment.config, "none")
  const attributes = `service.instance.id=${crypto.randomUUID()},deployment.environment.name=${environment}`
  return ConfigProvider.layerAdd(ConfigProvider.fromUnknown({ ...defaults, OTEL_RESOURCE_ATTRIBUTES: attributes }))
}))

export const layer = exported.pipe(
  Layer.provideMerge(Otlp.layerFromConfig()),
  Layer.provide([OtlpSerialization.layerJson, NodeHttpClient.layerNodeHttp]),
  Layer.provide(withDefaults)
)
