/** Tests the drawing of usage over time. */
import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, DateTime, Effect } from "effect"
import { bars } from "../../src/command/Sparkline.ts"
import type { Style } from "../../src/command/Style.ts"
import { describeUsage, drawUsage } from "../../src/command/UsageText.ts"

const env = ConfigProvider.fromEnv({ env: {} })
const characters = Effect.runSync(Effect.provideService(bars, ConfigProvider.ConfigProvider, env))

const tag = (name: string) => (text: string): string => `<${name}>${text}</${name}>`
const style: Style = { bold: tag("b"), dim: tag("dim"), red: tag("red"), green: tag("green"), yellow: tag("yellow") }

const interval = (from: string, allowed: number, rejected = 0, banned = 0) => ({
  from: DateTime.makeUnsafe(from),
  allowed,
  rejected,
  banned
})

const now = DateTime.makeUnsafe("2026-11-24T12:34:56Z")

const usage = {
  minutes: [
    // An interval that has left the period since the response is not drawn.
    interval("2026-11-24T11:34:00Z", 1_000),
    interval("2026-11-24T11:35:00Z", 7),
    interval("2026-11-24T12:34:00Z", 60, 5, 1)
  ],
  hours: [
    interval("2026-10-26T01:00:00Z", 500),
    interval("2026-11-23T12:00:00Z", 2_000),
    interval("2026-11-24T11:00:00Z", 600),
    interval("2026-11-24T12:00:00Z", 634, 5, 1)
  ]
}

describe("The usage of a key", () => {
  it("has the requests of the last 60 minutes and 24 hours in keys show, the current ones last", () => {
    const totals = (allowed: string) =>
      `<green>${allowed} allowed</green>, <yellow>5 rejected</yellow>, <red>1 banned</red>`
    assert.deepStrictEqual(describeUsage(usage, now, characters, style), [
      `last hour  ▂${"▁".repeat(58)}█  ${totals("67")}`,
      `last day   ${"▁".repeat(22)}██  ${totals("1,234")}`
    ])
  })

  it("has a line for each kind of request in keys usage, and adds the hours of each day", () => {
    const lines = drawUsage(usage, now, characters, style)
    assert.strictEqual(lines.length, 15)
    assert.deepStrictEqual(lines.slice(10), [
      "",
      "<b>last 30 days</b>",
      `allowed   <green>▃${"▁".repeat(27)}█▆</green>  3,734`,
      `rejected  <yellow>${"▁".repeat(29)}█</yellow>  5`,
      `banned    <red>${"▁".repeat(29)}█</red>  1`
    ])
    const none = drawUsage({ minutes: [], hours: [] }, now, characters, style)
    assert.include(none, `banned    <dim>${"▁".repeat(60)}</dim>  0`)
  })
})
