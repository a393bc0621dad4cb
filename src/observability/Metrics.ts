/** Metrics with attributes, made once for each set of values: making one anew per request costs more than using it. */
import { Metric } from "effect"

/** The series for some values, and those for these values and one more. */
interface Branch<Series> {
  series: Series | undefined
  readonly next: Map<string, Branch<Series>>
}

const newBranch = <Series>(): Branch<Series> => ({ series: undefined, next: new Map() })

/** The series of `metric` for some values; there must be few of them. */
export const byAttributes = <Values extends ReadonlyArray<string>, Input, State>(
  metric: Metric.Metric<Input, State>,
  attributes: (...values: Values) => Metric.Metric.AttributeSet
) => {
  const root = newBranch<Metric.Metric<Input, State>>()
  return (...values: Values): Metric.Metric<Input, State> => {
    let branch = root
    // A map for each value: a joined text would be made and hashed for every request.
    for (const value of values) {
      let next = branch.next.get(value)
      if (next === undefined) {
        next = newBranch()
        branch.next.set(value, next)
      }
      branch = next
    }
    branch.series ??= Metric.withAttributes(metric, attributes(...values))
    return branch.series
  }
}
