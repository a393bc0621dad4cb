import { assert, it } from "@effect/vitest"
import { Socket } from "node:net"
import { setImmediate } from "node:timers/promises"
import { BufferedRequest } from "../../src/node-server/BufferedRequest.ts"
import { OrderedResponse, TurnSends } from "../../src/node-server/OrderedResponse.ts"

it("A response is sent once, with the body of its first `end`, and counts twice its bytes", async () => {
  for (const body of ["é1", Buffer.from("123")]) {
    const response = new OrderedResponse(new BufferedRequest(new Socket()))
    const written: Array<number> = []
    response.host = {
      sends: new TurnSends(),
      mayStart: () => {},
      responseWritten: (_, bytes) => written.push(bytes),
      responseSent: () => {},
      crash: assert.fail
    }
    response.end(body)
    response.end("other")
    assert.deepStrictEqual(written, [])
    await setImmediate()
    response.end("other")
    await setImmediate()
    assert.deepStrictEqual(written, [6])
  }
})

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
