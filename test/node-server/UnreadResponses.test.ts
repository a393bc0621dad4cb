import { assert, it } from "@effect/vitest"
import { IncomingMessage, ServerResponse } from "node:http"
import { Socket } from "node:net"
import { UnreadResponses } from "../../src/node-server/UnreadResponses.ts"

it("The oldest unread responses are closed beyond the bound, and each counts until it closes, once", () => {
  const unread = new UnreadResponses(80)
  const closed: Array<string> = []
  const add = (name: string) => {
    const response = new ServerResponse(new IncomingMessage(new Socket()))
    unread.add(response, 40, () => closed.push(name))
    return response
  }
  const first = add("a")
  const second = add("b")
  assert.deepStrictEqual(closed, [])
  add("c")
  assert.deepStrictEqual(closed, ["a"])
  // Node emits it some time after the connection was closed.
  first.emit("close")
  second.emit("close")
  add("d")
  assert.deepStrictEqual(closed, ["a"])
  add("e")
  assert.deepStrictEqual(closed, ["a", "c"])
})
