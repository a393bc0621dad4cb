/** Tests how the console reads `/metrics`. */
import { assert, describe, it } from "@effect/vitest"
import { growth, parse, quantile, sum, sumsBy } from "../../src/console/MetricSamples.ts"

describe("MetricSamples", () => {
  it("parses names, labels with escapes, and values, and skips comments and unknown lines", () => {
    const scrape = parse(`# HELP a_total Text.
# TYPE a_total counter
a_total{route="/v1/pets",note="a \\"b\\", c\\nd\\\\"} 3
a_total 4
a_bucket{le="+Inf"} 7
not a sample
b 1.5e3
`)
    assert.strictEqual(scrape.get("a_total")?.[0]?.labels.get("note"), `a "b", c\nd\\`)
    assert.strictEqual(sum(scrape, "a_total"), 7)
    assert.strictEqual(sum(scrape, "a_total", (labels) => labels.get("route") === "/v1/pets"), 3)
    assert.strictEqual(sum(scrape, "b"), 1500)
    assert.isUndefined(sum(scrape, "c"))
    assert.deepStrictEqual([...sumsBy(scrape, "a_bucket", "le")], [["+Inf", 7]])
  })

  it("counts the growth of a counter from zero after a restart", () => {
    assert.deepStrictEqual([growth(5, 8), growth(undefined, 3), growth(8, 2), growth(8, undefined)], [3, 3, 2, 0])
  })

  it("interpolates a quantile within the bucket of the requests between two scrapes", () => {
    const buckets = (counts: ReadonlyArray<number>) =>
      parse(["0.1", "0.2", "+Inf"].map((le, index) => `d_bucket{le="${le}"} ${counts[index]}`).join("\n"))
    const before = buckets([100, 100, 100])
    assert.isUndefined(quantile(before, before, "d", 0.99))
    assert.strictEqual(quantile(before, buckets([110, 110, 110]), "d", 0.5), 0.05)
    assert.closeTo(quantile(before, buckets([100, 110, 110]), "d", 0.5) ?? 0, 0.15, 1e-9)
    // Above the last bound, only the bound is known.
    assert.strictEqual(quantile(before, buckets([100, 100, 110]), "d", 0.99), 0.2)
  })
})
