/** Tests the sums of metrics of several processes. */
import { assert, describe, it } from "@effect/vitest"
import * as MetricsText from "../../src/cluster/MetricsText.ts"

const first = `# HELP petstore_requests_total Requests by path.
# TYPE petstore_requests_total counter
petstore_requests_total{path="/a b"} 1
petstore_requests_total{path="/c"} 2
# TYPE petstore_duration_seconds histogram
petstore_duration_seconds_bucket{le="0.5"} 1
petstore_duration_seconds_bucket{le="+Inf"} 3
petstore_duration_seconds_sum 1.5
petstore_duration_seconds_count 3
# TYPE petstore_connections gauge
petstore_connections 4
# TYPE petstore_rate_limit_fallback gauge
petstore_rate_limit_fallback 1
`

const second = `# TYPE petstore_rate_limit_fallback gauge
petstore_rate_limit_fallback 0
# TYPE petstore_connections gauge
petstore_connections 5
# HELP petstore_requests_total Requests by path.
# TYPE petstore_requests_total counter
petstore_requests_total{path="/a b"} 10
petstore_requests_total{path="/d"} 20
# TYPE petstore_duration_seconds histogram
petstore_duration_seconds_bucket{le="0.5"} 0
petstore_duration_seconds_bucket{le="+Inf"} 1
petstore_duration_seconds_sum 2
petstore_duration_seconds_count 1
# HELP petstore_bans_total Bans.
# TYPE petstore_bans_total counter
petstore_bans_total 1
`

const merged = `# HELP petstore_requests_total Requests by path.
# TYPE petstore_requests_total counter
petstore_requests_total{path="/a b"} 11
petstore_requests_total{path="/c"} 2
petstore_requests_total{path="/d"} 20
# TYPE petstore_duration_seconds histogram
petstore_duration_seconds_bucket{le="0.5"} 1
petstore_duration_seconds_bucket{le="+Inf"} 4
petstore_duration_seconds_sum 3.5
petstore_duration_seconds_count 4
# TYPE petstore_connections gauge
petstore_connections 9
# TYPE petstore_rate_limit_fallback gauge
petstore_rate_limit_fallback 1
# HELP petstore_bans_total Bans.
# TYPE petstore_bans_total counter
petstore_bans_total 1
`

describe("Metrics of several processes", () => {
  it("are summed by series, and a gauge of a state is the maximum", () => {
    assert.strictEqual(MetricsText.merge([first, second]), merged)
  })

  it("equal those of the only process", () => {
    assert.strictEqual(MetricsText.merge(["", first]), first)
    assert.strictEqual(MetricsText.merge([]), "")
  })

  it("keep counters and histograms of a process that has ended, and none of its gauges", () => {
    assert.strictEqual(MetricsText.withoutGauges(first), first.slice(0, first.indexOf("# TYPE petstore_connections")))
  })
})
