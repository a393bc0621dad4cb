/** A stream whose bytes another stream carries. */
import { Duplex } from "node:stream"

/** Relays bytes to a carrier, which a subclass may set later. Writes wait until then. */
export class RelayStream extends Duplex {
  #carrier: Duplex | undefined
  #onCarrier: ((carrier: Duplex) => void) | undefined

  /** Relays to `carrier` from now on. It ends with the carrier, and fails with its error. */
  protected carry(carrier: Duplex): void {
    this.#carrier = carrier
    carrier.on("data", (chunk: Buffer) => this.receive(chunk))
    carrier.on("end", () => this.push(null))
    this.endWith(carrier)
    this.#onCarrier?.(carrier)
  }

  /** Ends this stream when `stream` fails or closes. */
  protected endWith(stream: Duplex): void {
    stream.on("error", (error) => this.destroy(error)).on("close", () => this.destroy())
  }

  /** Takes bytes of the carrier. A subclass may inspect them first. */
  protected receive(chunk: Buffer): void {
    if (!this.push(chunk)) this.#carrier?.pause()
  }

  override _read(): void {
    this.#carrier?.resume()
  }

  /** Runs `use` now, or when there is a carrier. A stream has at most one write in progress. */
  #withCarrier(use: (carrier: Duplex) => void): void {
    if (this.#carrier === undefined) this.#onCarrier = use
    else use(this.#carrier)
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this.#withCarrier((carrier) => {
      if (carrier.write(chunk)) callback()
      else carrier.once("drain", callback)
    })
  }

  override _final(callback: (error?: Error | null) => void): void {
    this.#withCarrier((carrier) => void carrier.end(callback))
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#carrier?.destroy()
    callback(error)
  }
}
