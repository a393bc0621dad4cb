/** Series of metrics: a cache of them, and counters that start at zero. */
import { Effect, Metric } from "effect"

/**
 * Returns a function from attribute values to the series of `metric` with these values. It caches the series, because
 * creating one per request costs more than updating it. The cache evicts nothing, so the attributes must have few
 * different values.
 */
export const byAttributes = <Values extends ReadonlyArray<string>, Input, State>(
  metric: Metric.Metric<Input, State>,
  attributes: (...values: Values) => Metric.Metric.AttributeSet
) => {
  const cache = new Map<string, Metric.Metric<Input, State>>()
  return (...values: Values): Metric.Metric<Input, State> => {
    const key = values.join("\n")
    const cached = cache.get(key)
    if (cached !== undefined) return cached
    const series = Metric.withAttributes(metric, attributes(...values))
    cache.set(key, series)
    return series
  }
}

/**
 * Shows counters with the value 0 before their first event. Otherwise Prometheus misses that event: `increase` compares
 * with the first sample of a series.
 */
export const startAtZero = (counters: Iterable<Metric.Counter<number>>): Effect.Effect<void> =>
  Effect.forEach(counters, (counter) => Metric.update(counter, 0), { discard: true })
