/**
 * Chooses one of several PostgreSQL servers by its state, as `target_session_attrs` says (PostgreSQL, "Connection
 * Control Functions"). All sessions of a pool are on the same server.
 */
import type { Duplex } from "node:stream"
import type { Server, TargetSessionAttrs } from "../config/ConnectionString.ts"
import { SilentServer } from "./PostgresSocket.ts"
import { RelayStream } from "./RelayStream.ts"

/** The state of a server, as it reports it to each session. PostgreSQL reports it since version 14. */
type ServerState = ReadonlyMap<string, string>

const standbyParameter = "in_hot_standby"
const readOnlyParameter = "default_transaction_read_only"

const isSuitable = (attributes: TargetSessionAttrs, state: ServerState): boolean => {
  const isStandby = state.get(standbyParameter) === "on"
  const isReadOnly = isStandby || state.get(readOnlyParameter) === "on"
  switch (attributes) {
    case "any":
      return true
    case "read-write":
      return state.has(standbyParameter) && !isReadOnly
    case "read-only":
      return isReadOnly
    case "primary":
      return state.has(standbyParameter) && !isStandby
    default:
      return isStandby
  }
}

/** The server does not have the attributes in `target_session_attrs`. Another one may have. */
export class UnsuitableServer extends Error {
  override readonly name = "UnsuitableServer"
  readonly code = "EUNSUITABLE"

  constructor({ host, port }: Server, attributes: TargetSessionAttrs) {
    super(`The server ${host}:${port} does not have target_session_attrs=${attributes}.`)
  }
}

/** The code of the message CancelRequest, which is the only one of its connection. */
const cancelRequestCode = 80_877_102
const isCancelRequest = (chunk: Buffer): boolean => chunk.length === 16 && chunk.readInt32BE(4) === cancelRequestCode

const parameterStatus = 0x53
const readyForQuery = 0x5a
const readyForQueryLength = 6

/** The bytes of ParameterStatus for a parameter that is `on` or `off`. */
const statusMessage = (name: string, value: string): Buffer => {
  const text = Buffer.from(`${name}\0${value}\0`)
  const head = Buffer.from([parameterStatus, 0, 0, 0, 0])
  head.writeInt32BE(text.length + 4, 1)
  return Buffer.concat([head, text])
}

/** The messages that report a change of the state, with what they report. */
const changes = [standbyParameter, readOnlyParameter].flatMap((name) =>
  ["on", "off"].map((value) => ({ name, value, message: statusMessage(name, value) }))
)

/** Whether `chunk` has `message` before its last `distance` bytes. */
const endsWith = (chunk: Buffer, message: Buffer, distance: number): boolean => {
  const end = chunk.length - distance
  return end >= message.length && message.compare(chunk, end - message.length, end) === 0
}

/** The events of a session. */
interface SessionEvents {
  /** Whether a server in this state is suitable. */
  readonly accepts: (state: ServerState) => boolean
  /** The session is ready. */
  readonly onReady: () => void
  /** The session did not become ready. */
  readonly onFailure: () => void
  /** The session is over, or did not become ready. `error` is its cause. */
  readonly onClose: (error: Error | null) => void
}

/**
 * A session that reads the state of its server. It fails with `unsuitable` before the driver learns that it is ready,
 * and after a reply that reports another state. A server can become read-only, and a standby can be promoted.
 */
class Session extends RelayStream {
  readonly #events: SessionEvents
  readonly #unsuitable: Error
  readonly #state = new Map<string, string>()
  #isReady = false
  #isCancelRequest = false
  /** Bytes of a message of the startup that is not complete. */
  #incomplete: Buffer = Buffer.alloc(0)

  constructor(carrier: Duplex, unsuitable: Error, events: SessionEvents) {
    super()
    this.#events = events
    this.#unsuitable = unsuitable
    this.carry(carrier)
  }

  override _write(chunk: Buffer, encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this.#isCancelRequest ||= !this.#isReady && isCancelRequest(chunk)
    super._write(chunk, encoding, callback)
  }

  protected override receive(chunk: Buffer): void {
    if (this.#isReady) {
      super.receive(chunk)
      this.#readChange(chunk)
    } else {
      this.#readStartup(Buffer.concat([this.#incomplete, chunk]))
    }
  }

  /** Passes on the complete messages of the startup, of which ReadyForQuery is the last. */
  #readStartup(bytes: Buffer): void {
    let start = 0
    while (start + 5 <= bytes.length) {
      const end = start + 1 + bytes.readInt32BE(start + 1)
      if (end > bytes.length || end < start + 5) break
      if (bytes[start] === parameterStatus) {
        const [name = "", value = ""] = bytes.toString("utf8", start + 5, end).split("\0")
        this.#state.set(name, value)
      }
      if (bytes[start] === readyForQuery) {
        if (!this.#events.accepts(this.#state)) {
          this.destroy(this.#unsuitable)
          return
        }
        this.#isReady = true
        this.#events.onReady()
        super.receive(bytes)
        return
      }
      start = end
    }
    if (start > 0) super.receive(bytes.subarray(0, start))
    this.#incomplete = bytes.subarray(start)
  }

  /** A server reports changes at the end of a reply, immediately before ReadyForQuery. */
  #readChange(chunk: Buffer): void {
    if (chunk.at(-readyForQueryLength) !== readyForQuery || chunk.at(-readyForQueryLength - 1) !== 0) return
    let distance = readyForQueryLength
    for (;;) {
      const change = changes.find(({ message }) => endsWith(chunk, message, distance))
      if (change === undefined) break
      this.#state.set(change.name, change.value)
      distance += change.message.length
    }
    // The driver gets the reply first.
    if (distance > readyForQueryLength && !this.#events.accepts(this.#state)) {
      setImmediate(() => this.destroy(this.#unsuitable))
    }
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    if (!this.#isReady && !this.#isCancelRequest) this.#events.onFailure()
    this.#events.onClose(error)
    super._destroy(error, callback)
  }
}

/**
 * Opens all sessions on one server: the first one in the list that is suitable. When a session cannot be opened there
 * and none is left, the next session is opened on the next server. When the server is silent, all of its sessions end.
 */
export class ServerSelection {
  readonly #servers: readonly [Server, ...ReadonlyArray<Server>]
  readonly #attributes: TargetSessionAttrs
  #index = 0
  /** The sessions on the selected server that are ready. */
  #sessions = new Set<Duplex>()
  /** The servers in a row that were left without a session becoming ready. */
  #failures = 0

  constructor(servers: readonly [Server, ...ReadonlyArray<Server>], attributes: TargetSessionAttrs) {
    this.#servers = servers
    this.#attributes = attributes
  }

  /** Opens a session, or a connection for a CancelRequest, with `connect`. */
  open(connect: (server: Server) => Duplex): Duplex {
    const index = this.#index
    const server = this.#servers[index] ?? this.#servers[0]
    if (this.#servers.length === 1 && this.#attributes === "any") return connect(server)
    // With prefer-standby, any server is suitable after none of them was.
    const acceptsAll = this.#attributes === "prefer-standby" && this.#failures >= this.#servers.length
    const session: Session = new Session(connect(server), new UnsuitableServer(server, this.#attributes), {
      accepts: (state) => this.#index === index && (acceptsAll || isSuitable(this.#attributes, state)),
      onReady: () => {
        if (this.#index !== index) return
        this.#failures = 0
        this.#sessions.add(session)
      },
      onFailure: () => {
        if (this.#index !== index || this.#sessions.size > 0) return
        this.#failures++
        this.#index = (index + 1) % this.#servers.length
      },
      onClose: (error) => {
        const wasReady = this.#sessions.delete(session)
        if (wasReady && error instanceof SilentServer) {
          for (const other of this.#sessions) other.destroy(error)
        }
      }
    })
    return session
  }
}
