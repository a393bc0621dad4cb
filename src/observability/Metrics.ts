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
  interface Node extends Map<string, Node> {
    series?: Metric.Metric<Input, State>
  }
  const root: Node = new Map()
  return (...values: Values): Metric.Metric<Input, State> => {
    let node = root
    for (const value of values) {
      let next = node.get(value)
      if (next === undefined) node.set(value, next = new Map())
      node = next
    }
    return node.series ??= Metric.withAttributes(metric, attributes(...values))
  }
}

/**
 * Shows counters with the value 0 before their first event. Otherwise Prometheus misses that event: `increase` compares
 * with the first sample of a series.
 */
export const startAtZero = (counters: Iterable<Metric.Counter<number>>): Effect.Effect<void> =>
  Effect.forEach(counters, (counter) => Metric.update(counter, 0), { discard: true })
