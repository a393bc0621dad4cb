/**
 * Traces a contender with OpenTelemetry's SDK: one span for each request, in batches over OTLP, as the service has them.
 * `node --import` runs it before the contender.
 */
import { context, trace } from "@opentelemetry/api"
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks"
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http"
import { registerInstrumentations } from "@opentelemetry/instrumentation"
import { HttpInstrumentation } from "@opentelemetry/instrumentation-http"
import {
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
  TracerProvider
} from "@opentelemetry/sdk-trace"
import { register } from "node:module"

// Modules that import `node:http` get the instrumented functions only through this hook.
register("@opentelemetry/instrumentation/hook.mjs", import.meta.url)
context.setGlobalContextManager(new AsyncLocalStorageContextManager())
const ratio = process.env.OTEL_TRACES_SAMPLER_ARG
const tracerProvider = new TracerProvider({
  sampler: new ParentBasedSampler({
    root: ratio === undefined ? new AlwaysOnSampler() : new TraceIdRatioBasedSampler(Number(ratio))
  }),
  spanProcessors: [new BatchSpanProcessor({ exporter: new OTLPTraceExporter() })]
})
trace.setGlobalTracerProvider(tracerProvider)
registerInstrumentations({ tracerProvider, instrumentations: [new HttpInstrumentation()] })
