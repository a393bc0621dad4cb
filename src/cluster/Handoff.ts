/** Closes the connections that a worker did not take over before its end. */
import { Predicate } from "effect"
import type { ChildProcess } from "node:child_process"

interface Handle {
  readonly close: () => void
}

const isHandle = (value: unknown): value is Handle =>
  Predicate.hasProperty(value, "close") && typeof value.close === "function"

/** The number of a message of `node:cluster`, or that of the message it replies to. */
const numberOf = (message: unknown, field: "seq" | "ack"): unknown =>
  Predicate.hasProperty(message, field) ? message[field] : undefined

/**
 * Closes each connection that the primary process has sent to `child` when `child` ends without a reply to it.
 *
 * `node:cluster` never closes such a connection: its client would wait for ever, and the primary process would keep its
 * handle. The sequence numbers of messages are internal to Node (`RoundRobinHandle.handoff`). `workers.test.ts` fails
 * without this function.
 */
export const closeWithWorker = (child: ChildProcess): void => {
  const sent = new Map<unknown, Handle>()
  const send = child.send
  Object.assign(child, {
    send: (...args: Array<unknown>): unknown => {
      const [message, handle] = args
      if (isHandle(handle)) sent.set(numberOf(message, "seq"), handle)
      return Reflect.apply(send, child, args)
    }
  })
  child.on("internalMessage", (message: unknown) => void sent.delete(numberOf(message, "ack")))
  child.on("exit", () => {
    for (const handle of sent.values()) handle.close()
    sent.clear()
  })
}
