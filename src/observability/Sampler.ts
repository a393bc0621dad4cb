/**
 * Decides which spans are exported, as OpenTelemetry's samplers do (`OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG`).
 */
import { Effect, Layer, Option, Tracer } from "effect"
import * as Settings from "../config/Settings.ts"

/** Whether a ratio sampler samples a trace. All services with one ratio decide alike, since the id decides. */
const isInRatio = (traceId: string, ratio: number): boolean =>
  // The last 13 hexadecimal digits, which W3C Trace Context requires to be random, are exact as a number.
  Number.parseInt(traceId.slice(-13), 16) >= (1 - ratio) * 16 ** 13

type StartSpan = (options: Parameters<Tracer.Tracer["span"]>[0]) => Tracer.Span

/** Starts a root span, and samples it by the id of its trace. */
const startRoot = (span: StartSpan, options: Parameters<StartSpan>[0], ratio: number): Tracer.Span => {
  let started = span({ ...options, sampled: true })
  if (isInRatio(started.traceId, ratio)) return started
  // The tracer chooses the id of a trace. Other services must not sample a trace that this process does not sample.
  do started = span({ ...options, sampled: false })
  while (isInRatio(started.traceId, ratio))
  return started
}

/** Returns a tracer that samples the spans of `tracer`. */
export const sampled = (
  tracer: Tracer.Tracer,
  sampler: string,
  ratio: number
): Tracer.Tracer => {
  const span: StartSpan = (options) => tracer.span(options)
  const [base, isParentBased] = sampler.startsWith("parentbased_")
    ? [sampler.slice("parentbased_".length), true]
    : [sampler, false]
  const rootRatio = base === "always_on" ? 1 : base === "always_off" ? 0 : ratio
  return Tracer.make({
    ...tracer,
    span: (options) => {
      if (!options.sampled && Option.isNone(options.parent)) return span(options)
      if (Option.isNone(options.parent)) return startRoot(span, options, rootRatio)
      // A child is sampled like its parent, unless the sampler ignores parents.
      return isParentBased
        ? span({ ...options, sampled: options.sampled && options.parent.value.sampled })
        : span({ ...options, sampled: isInRatio(options.parent.value.traceId, rootRatio) })
    }
  })
}

/** Samples the spans of the tracer that it is given. Fails with a `ConfigError`. */
export const layer = Layer.effect(
  Tracer.Tracer,
  Effect.gen(function*() {
    return sampled(
      yield* Tracer.Tracer,
      yield* Settings.otelTracesSampler.config,
      yield* Settings.otelTracesSamplerRatio.config
    )
  })
)
