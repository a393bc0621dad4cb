/**
 * The part of a connection that handlers and middleware read. The source of a request from a socket is a
 * `ServerSource` (`node/IncomingRequest.ts`). A request in memory has another source, and no connection.
 */
import type { Effect } from "effect"
import type { RequestContext } from "./RequestContext.ts"

/** Marks a `ServerSource`. */
export const TypeId = Symbol.for("petstore/http/ServerSource")

/** The headers as the server's parser made them. Effect makes its own when they are first read, which costs time. */
interface Headers extends Readonly<Record<string, string | ReadonlyArray<string> | undefined>> {
  readonly expect?: string | undefined
}

/** The source of a request that arrived through a socket. */
export interface ServerSource {
  readonly [TypeId]: true
  readonly headers: Headers
  /** Whether the whole request has arrived. */
  readonly complete: boolean
  /** Whether the connection is closed. */
  readonly isClosed: boolean
  /** The request context, once the server handles the request. */
  readonly requestContext: RequestContext | undefined
  /**
   * Must run before a large response is read or rendered. Waits until few others are in memory. Dies with
   * `ServiceUnavailable` after one second. Interrupts if the connection closes meanwhile.
   */
  readonly reserveLargeResponse: Effect.Effect<void>
}

export const isServerSource = (source: object): source is ServerSource => TypeId in source
