/** Tests lines of bars. */
import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Effect } from "effect"
import { bar, bars, sparkline } from "../../src/command/Sparkline.ts"

const barsIn = (env: Readonly<Record<string, string>>) =>
  Effect.runSync(Effect.provideService(bars, ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env })))

describe("A sparkline", () => {
  const blocks = barsIn({})

  it("has one character a count, relative to the largest count, and the lowest one only for 0", () => {
    assert.strictEqual(sparkline([0, 1, 2, 3, 4, 5, 6, 7], blocks), "▁▂▃▄▅▆▇█")
    assert.strictEqual(sparkline([0, 1, 1_000_000], blocks), "▁▂█")
    assert.strictEqual(sparkline([0, 0, 0], blocks), "▁▁▁")
    assert.strictEqual(sparkline([], blocks), "")
  })

  it("is ASCII if the locale names another encoding than UTF-8", () => {
    for (const env of [{ LANG: "C" }, { LC_ALL: "POSIX", LANG: "C.UTF-8" }, { LC_CTYPE: "de_DE.ISO-8859-1" }]) {
      assert.strictEqual(sparkline([0, 1, 2, 3, 4, 5, 6, 7], barsIn(env)), "_.:-=+*#")
      assert.strictEqual(bar(1, 2, 4, barsIn(env)), "##..")
    }
    for (const env of [{ LANG: "de_DE.utf8" }, { LC_ALL: "C.UTF-8", LANG: "C" }]) {
      assert.strictEqual(barsIn(env), blocks)
    }
  })
})

describe("The bar of a limit", () => {
  it("is full only if the limit is used up, and empty only if nothing is used", () => {
    const blocks = barsIn({})
    const drawn = [0, 1, 500, 999, 1_000, 1_200].map((used) => bar(used, 1_000, 4, blocks))
    assert.deepStrictEqual(drawn, ["░░░░", "█░░░", "██░░", "███░", "████", "████"])
  })
})
