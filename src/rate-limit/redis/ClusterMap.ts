/** The map of hash slots to the servers of a cluster (Redis cluster specification). */
import { Option, Schema } from "effect"
import type { Address } from "../../config/RedisUrl.ts"

export const slotCount = 16_384

/** A master, its replicas, and the ranges of slots that it owns. */
export interface Group {
  readonly master: string
  readonly address: Address
  /** The ids of the master and of its replicas. */
  readonly nodes: ReadonlySet<string>
  readonly ranges: ReadonlyArray<readonly [first: number, last: number]>
}

const crcTable = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x80_00 ? crc << 1 ^ 0x10_21 : crc << 1
  return crc
})

/** CRC16 (XMODEM) of the characters, which must be ASCII. */
const crc16 = (text: string): number => {
  let crc = 0
  for (let i = 0; i < text.length; i++) {
    crc = crc << 8 & 0xff_ff ^ (crcTable[crc >> 8 ^ text.charCodeAt(i) & 0xff] ?? 0)
  }
  return crc
}

/** Returns the slot of a key: of the text in the first braces, if there is any, or of the whole key. */
export const slotOf = (key: string): number => {
  const open = key.indexOf("{")
  const close = open < 0 ? -1 : key.indexOf("}", open)
  return crc16(close > open + 1 ? key.slice(open + 1, close) : key) % slotCount
}

/**
 * Returns a hash tag in one of the group's slots. The tags are tried in a fixed order, so that all processes use the
 * same one. A tag changes only when its slot moves to another master.
 */
export const tagOf = ({ ranges }: Group): string => {
  const isOwned = (slot: number): boolean => ranges.some(([first, last]) => first <= slot && slot <= last)
  let tag = 0
  while (!isOwned(slotOf(String(tag)))) tag++
  return String(tag)
}

const Node = Schema.TupleWithRest(
  Schema.Tuple([Schema.NullOr(Schema.String), Schema.Finite, Schema.String]),
  [Schema.Unknown]
)
const decode = Schema.decodeUnknownOption(
  Schema.Array(Schema.TupleWithRest(Schema.Tuple([Schema.Finite, Schema.Finite, Node]), [Node]))
)

/** A server names no host, or `?`, if its host is the one that it was reached at. */
export const addressOf = (host: string | null, port: number, reachedAt: Address): Address => ({
  host: host === null || host === "" || host === "?" ? reachedAt.host : host,
  port
})

/** Reads the reply to CLUSTER SLOTS of the server that was reached at `from`. Returns `undefined` if it is no map. */
export const parse = (reply: unknown, from: Address): ReadonlyArray<Group> | undefined => {
  const entries = Option.getOrUndefined(decode(reply))
  if (entries === undefined) return undefined
  const groups = new Map<string, Group & { nodes: Set<string>; ranges: Array<readonly [number, number]> }>()
  for (const [first, last, master, ...replicas] of entries) {
    const [host, port, id] = master
    const group = groups.get(id) ??
      { master: id, address: addressOf(host, port, from), nodes: new Set([id]), ranges: [] }
    for (const [, , replica] of replicas) group.nodes.add(replica)
    group.ranges.push([first, last])
    groups.set(id, group)
  }
  return [...groups.values()]
}

/** Reads the error of a server that does not serve a slot: where it is served, and whether it is still moving. */
export const parseRedirection = (message: string, from: Address) => {
  const [, kind, slot, host = "", port] = /^(MOVED|ASK) (\d+) (.*):(\d+)$/.exec(message) ?? []
  return kind === undefined
    ? undefined
    : { isAsk: kind === "ASK", slot: Number(slot), address: addressOf(host, Number(port), from) }
}
