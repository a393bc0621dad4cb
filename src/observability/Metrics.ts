/** Series of metrics: a cache of them, and counters that start at zero. */
import { Effect, Metric } from "effect"

/** A node of the cache: the series for a list of values, and the nodes for that list and one more value. */
interface CacheNode<Series> {
  series: Series | undefined
  readonly next: Map<string, CacheNode<Series>>
}

const newNode = <Series>(): CacheNode<Series> => ({ series: undefined, next: new Map() })

/**
 * Returns a function from attribute values to the series of `metric` with these values. It caches the series, because
 * creating one per request costs more than updating it. The cache evicts nothing, so the attributes must have few
 * different values.
 */
export const byAttributes = <Values extends ReadonlyArray<string>, Input, State>(
  metric: Metric.Metric<Input, State>,
  attributes: (...values: Values) => Metric.Metric.AttributeSet
) => {
  const root = newNode<Metric.Metric<Input, State>>()
  return (...values: Values): Metric.Metric<Input, State> => {
    let node = root
    // The cache has one map per value. A joined key would have to be built and hashed for every request.
    for (const value of values) {
      let next = node.next.get(value)
      if (next === undefined) {
        next = newNode()
        node.next.set(value, next)
      }
      node = next
    }
    node.series ??= Metric.withAttributes(metric, attributes(...values))
    return node.series
  }
}

/**
 * Shows counters with the value 0 before their first event. Otherwise Prometheus misses that event: `increase` compares
 * with the first sample of a series.
 */
export const startAtZero = (counters: Iterable<Metric.Counter<number>>): Effect.Effect<void> =>
  Effect.forEach(counters, (counter) => Metric.update(counter, 0), { discard: true })
