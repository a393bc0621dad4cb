/** Tests which spans the samplers of OpenTelemetry select. */
import { assert, describe, it } from "@effect/vitest"
import { Context, Option, Tracer } from "effect"
import { sampled } from "../../src/observability/Sampler.ts"

const start = (tracer: Tracer.Tracer, parent?: Tracer.AnySpan) =>
  tracer.span({
    name: "span",
    parent: Option.fromUndefinedOr(parent),
    annotations: Context.empty(),
    links: [],
    startTime: 0n,
    kind: "server",
    root: parent === undefined,
    sampled: parent?.sampled ?? true
  })

const remote = (isSampled: boolean, traceId = "f".repeat(32)) =>
  Tracer.externalSpan({ traceId, spanId: "1".repeat(16), sampled: isSampled })

describe("Samplers", () => {
  const expected = {
    always_on: { root: true, sampledParent: true, otherParent: true },
    always_off: { root: false, sampledParent: false, otherParent: false },
    parentbased_always_on: { root: true, sampledParent: true, otherParent: false },
    parentbased_always_off: { root: false, sampledParent: true, otherParent: false }
  }
  for (const [sampler, { otherParent, root, sampledParent }] of Object.entries(expected)) {
    it(`${sampler} decides on roots and on the children of sampled and other parents`, () => {
      const tracer = sampled(Tracer.nativeTracer, sampler, 0.5)
      assert.strictEqual(start(tracer).sampled, root)
      assert.strictEqual(start(tracer, remote(true)).sampled, sampledParent)
      assert.strictEqual(start(tracer, remote(false)).sampled, otherParent)
    })
  }

  it("traceidratio decides by the id of the trace alone, so that all services decide alike", () => {
    const tracer = sampled(Tracer.nativeTracer, "traceidratio", 0.25)
    assert.isTrue(start(tracer, remote(false, `${"0".repeat(19)}${"c".padEnd(13, "0")}`)).sampled)
    assert.isFalse(start(tracer, remote(true, `${"f".repeat(19)}${"b".padEnd(13, "f")}`)).sampled)
    for (let i = 0; i < 200; i++) {
      const root = start(tracer)
      assert.strictEqual(start(tracer, remote(!root.sampled, root.traceId)).sampled, root.sampled)
    }
  })

  it("parentbased_traceidratio samples its share of the roots, and children like their parents", () => {
    const tracer = sampled(Tracer.nativeTracer, "parentbased_traceidratio", 0.25)
    const roots = Array.from({ length: 4_000 }, () => start(tracer))
    const share = roots.filter((root) => root.sampled).length / roots.length
    assert.isAbove(share, 0.2)
    assert.isBelow(share, 0.3)
    assert.isTrue(start(tracer, remote(true, "0".repeat(32))).sampled)
    assert.isFalse(start(tracer, remote(false)).sampled)
  })
})
