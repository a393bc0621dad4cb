import { Effect, Metric } from "effect"
import { byAttributes, startAtZero } from "../observability/Metrics.ts"

const failures = byAttributes(
  Metric.counter("background_failures_total", {
    description: "Failures of tasks beside the requests, by task.",
    incremental: true
  }),
  (task: string) => ({ task })
)

export const makeCountFailure = (task: string): Effect.Effect<Effect.Effect<void>> =>
  Effect.as(startAtZero([failures(task)]), Metric.update(failures(task), 1))
