import { Effect, Metric } from "effect"
import * as Brand from "../api/Brand.ts"

export const counter = (name: string, description: string): Metric.Counter<number> =>
  Metric.counter(`${Brand.name}_${name}`, { description, incremental: true })

export const gauge = (name: string, description: string): Metric.Gauge<number> =>
  Metric.gauge(`${Brand.name}_${name}`, { description })

const durationBoundaries = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]

export const histogramOfSeconds = (name: string, description: string, boundaries = durationBoundaries) =>
  Metric.histogram(`${Brand.name}_${name}_seconds`, { description, attributes: { unit: "s" }, boundaries })

/**
 * Returns a function that returns the metric with the given label values. Caches the labelled metrics, because creating
 * one costs more than an update. The cache never evicts, so labels must have few values.
 */
export const byAttributes = <Values extends ReadonlyArray<string>, Input, State>(
  metric: Metric.Metric<Input, State>,
  attributes: (...values: Values) => Metric.Metric.AttributeSet
) => {
  const series = new Map<string, Metric.Metric<Input, State>>()
  return (...values: Values): Metric.Metric<Input, State> => {
    const name = values.join()
    let found = series.get(name)
    if (found === undefined) series.set(name, found = Metric.withAttributes(metric, attributes(...values)))
    return found
  }
}

/** Starts counters at 0. Prometheus' `increase` misses the first event of a counter that appears with the value 1. */
export const startAtZero = (counters: Iterable<Metric.Counter<number>>): Effect.Effect<void> =>
  Effect.forEach(counters, (each) => Metric.update(each, 0), { discard: true })

const failures = byAttributes(
  counter("background_failures_total", "Failures of background tasks, by task."),
  (task: string) => ({ task })
)

export const makeCountFailure = (task: string): Effect.Effect<Effect.Effect<void>> =>
  Effect.as(startAtZero([failures(task)]), Metric.update(failures(task), 1))
