/** Questions and replies between the primary process and a worker, over the IPC channel of `node:cluster`. */
import { type Cause, type Duration, Effect, Schema } from "effect"
import type { EventEmitter } from "node:events"

/** A worker asks for `allMetrics` and `otherReadiness`, and tells `started` and `finalMetrics`. */
const Topic = Schema.Literals([
  "started",
  "allMetrics",
  "otherReadiness",
  "finalMetrics",
  "metrics",
  "readiness",
  "retire"
])
/** The reply about readiness when no request can be served. Else the reply names the counts in use. */
export const notReady = ""
export type Topic = typeof Topic.Type

const Message = Schema.Union([
  Schema.TaggedStruct("Question", { id: Schema.Int, topic: Topic, text: Schema.String }),
  Schema.TaggedStruct("Reply", { id: Schema.Int, text: Schema.String })
])

const decode = Schema.decodeUnknownEffect(Message)

/** One end of the channel. */
export interface Channel {
  /** Asks the other process. Fails if it does not reply in time, for example because it hangs. */
  readonly ask: (topic: Topic, text?: string) => Effect.Effect<string, Cause.TimeoutError>
}

interface Options<E> {
  readonly messages: EventEmitter
  readonly send: (message: typeof Message.Type) => void
  /** Replies to the questions of the other process, or fails if it has no reply. */
  readonly answer: (topic: Topic, text: string) => Effect.Effect<string, E>
  readonly maxReplyTime: Duration.Input
}

/** Opens a channel. */
export const make = Effect.fnUntraced(function*<E>({ answer, maxReplyTime, messages, send }: Options<E>) {
  const run = Effect.runForkWith(yield* Effect.context())
  const waiting = new Map<number, (text: string) => void>()
  let lastId = 0
  messages.on("message", (received: unknown) => {
    run(Effect.flatMap(decode(received), (message) => {
      if (message._tag === "Reply") {
        return Effect.sync(() => {
          waiting.get(message.id)?.(message.text)
          waiting.delete(message.id)
        })
      }
      const { id, text, topic } = message
      return Effect.map(answer(topic, text), (reply) => send({ _tag: "Reply", id, text: reply }))
    }))
  })
  const channel: Channel = {
    ask: (topic, text = "") =>
      Effect.callback<string>((resume) => {
        const id = ++lastId
        waiting.set(id, (reply) => resume(Effect.succeed(reply)))
        send({ _tag: "Question", id, topic, text })
        return Effect.sync(() => waiting.delete(id))
      }).pipe(Effect.timeout(maxReplyTime))
  }
  return channel
})
