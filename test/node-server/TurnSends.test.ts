import { assert, it } from "@effect/vitest"
import { setImmediate } from "node:timers/promises"
import { TurnSends } from "../../src/node-server/TurnSends.ts"

it("Each response is sent once, in order, at the end of the turn in which it was added", async () => {
  const sends = new TurnSends()
  const sent: Array<string> = []
  const add = (name: string, andThen = () => {}) =>
    sends.add({
      send: () => {
        sent.push(name)
        andThen()
      }
    })
  add("a", () => add("c"))
  await Promise.resolve()
  add("b")
  assert.deepStrictEqual(sent, [])
  await setImmediate()
  assert.deepStrictEqual(sent, ["a", "b"])
  await setImmediate()
  assert.deepStrictEqual(sent, ["a", "b", "c"])
})
