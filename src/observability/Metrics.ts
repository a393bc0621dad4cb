import { Effect, Metric } from "effect"

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
  Effect.forEach(counters, (counter) => Metric.update(counter, 0), { discard: true })

const failures = byAttributes(
  Metric.counter("petstore_background_failures_total", {
    description: "Failures of background tasks, by task.",
    incremental: true
  }),
  (task: string) => ({ task })
)

export const makeCountFailure = (task: string): Effect.Effect<Effect.Effect<void>> =>
  Effect.as(startAtZero([failures(task)]), Metric.update(failures(task), 1))
