/**
 * Exports traces, metrics and logs over OTLP when `OTEL_EXPORTER_OTLP_ENDPOINT` is set.
 *
 * OpenTelemetry's other environment variables configure the export. When the collector does not respond, only its
 * telemetry is lost: requests are served as before.
 */
import { Config, ConfigProvider, Effect, Layer, Option } from "effect"
import { FetchHttpClient } from "effect/http"
import { Otlp, OtlpSerialization } from "effect/observability"

const endpoint = Config.option(Config.String("OTEL_EXPORTER_OTLP_ENDPOINT"))

/** The defaults of OpenTelemetry: export all three signals over OTLP. */
const defaultExporters = { OTEL_TRACES_EXPORTER: "otlp", OTEL_METRICS_EXPORTER: "otlp", OTEL_LOGS_EXPORTER: "otlp" }

/** The exporters, or an empty layer without an endpoint. Fails with a `ConfigError`. */
export const layer = Layer.unwrap(Effect.gen(function*() {
  if (Option.isNone(yield* endpoint)) return Layer.empty
  const serviceName = yield* Config.String("OTEL_SERVICE_NAME").pipe(Config.withDefault("petstore"))
  return Otlp.layerFromConfig({ resource: { serviceName } }).pipe(
    Layer.provide([OtlpSerialization.layerJson, FetchHttpClient.layer]),
    Layer.provide(ConfigProvider.layerAdd(ConfigProvider.fromUnknown(defaultExporters)))
  )
}))
