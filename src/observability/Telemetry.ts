/**
 * Traces, metrics and logs by OTLP, where `OTEL_EXPORTER_OTLP_ENDPOINT` is set; OpenTelemetry's other variables say
 * how. A collector that does not answer costs nothing but what it would have been told.
 */
import { Config, ConfigProvider, Effect, Layer, Option } from "effect"
import { FetchHttpClient } from "effect/http"
import { Otlp, OtlpSerialization } from "effect/observability"

const endpoint = Config.option(Config.String("OTEL_EXPORTER_OTLP_ENDPOINT"))

/** OpenTelemetry's own defaults: export everything by OTLP. */
const byDefault = { OTEL_TRACES_EXPORTER: "otlp", OTEL_METRICS_EXPORTER: "otlp", OTEL_LOGS_EXPORTER: "otlp" }

export const layer = Layer.unwrap(Effect.gen(function*() {
  if (Option.isNone(yield* endpoint)) return Layer.empty
  const serviceName = yield* Config.String("OTEL_SERVICE_NAME").pipe(Config.withDefault("petstore"))
  return Otlp.layerFromConfig({ resource: { serviceName } }).pipe(
    Layer.provide([OtlpSerialization.layerJson, FetchHttpClient.layer]),
    Layer.provide(ConfigProvider.layerAdd(ConfigProvider.fromUnknown(byDefault)))
  )
}))
