/**
 * Exports traces, metrics and logs over OTLP when `OTEL_EXPORTER_OTLP_ENDPOINT` is set.
 *
 * OpenTelemetry's other environment variables configure the export. When the collector does not respond, only its
 * telemetry is lost: requests are served as before.
 */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Config, ConfigProvider, Effect, Layer, Option } from "effect"
import { Otlp, OtlpSerialization } from "effect/observability"
import * as Settings from "../config/Settings.ts"
import * as Sampler from "./Sampler.ts"

/** The defaults of OpenTelemetry: export all three signals over OTLP, and at most 512 spans at once. */
const defaults = {
  OTEL_TRACES_EXPORTER: "otlp",
  OTEL_METRICS_EXPORTER: "otlp",
  OTEL_LOGS_EXPORTER: "otlp",
  OTEL_BSP_MAX_EXPORT_BATCH_SIZE: "512"
}

/** The exporters, or an empty layer without an endpoint. Fails with a `ConfigError`. */
export const layer = Layer.unwrap(Effect.gen(function*() {
  if (Option.isNone(yield* Config.option(Settings.otlpEndpoint.config))) return Layer.empty
  const serviceName = yield* Settings.otelServiceName.config
  return Sampler.layer.pipe(
    Layer.provideMerge(Otlp.layerFromConfig({ resource: { serviceName } })),
    Layer.provide([OtlpSerialization.layerJson, NodeHttpClient.layerNodeHttp]),
    Layer.provide(ConfigProvider.layerAdd(ConfigProvider.fromUnknown(defaults)))
  )
}))
