/** Metrics with attributes, made once for each set of values: making one anew per request costs more than using it. */
import { Metric } from "effect"

/** The series of `metric` for some values; there are to be few of them. */
export const byAttributes = <Values extends ReadonlyArray<string>, Input, State>(
  metric: Metric.Metric<Input, State>,
  attributes: (...values: Values) => Metric.Metric.AttributeSet
) => {
  const series = new Map<string, Metric.Metric<Input, State>>()
  return (...values: Values): Metric.Metric<Input, State> => {
    const name = values.join(" ")
    let known = series.get(name)
    if (known === undefined) {
      known = Metric.withAttributes(metric, attributes(...values))
      series.set(name, known)
    }
    return known
  }
}
