/**
 * Makes and checks the secrets of API keys.
 *
 * A secret is `psk_`, 32 random base62 characters (190 bits) and a checksum of 6 characters. With the checksum, the
 * service rejects a mistyped key without a lookup, and a secret scanner recognizes a real key.
 */
import { Effect } from "effect"
import { SecureRandom } from "effect/crypto"

const prefix = "psk_"
const randomLength = 32
const checksumLength = 6
const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

/** Returns `length` random base62 characters. Each has 5.95 bits. */
export const randomText = Effect.fnUntraced(function*(length: number) {
  const random = yield* SecureRandom.SecureRandom
  const indices = yield* Effect.replicateEffect(random.intBetween(0, base62.length - 1), length)
  return indices.map((index) => base62.charAt(index)).join("")
})

/** Returns a new random secret. */
export const make = Effect.map(randomText(randomLength), (text) => prefix + text + checksum(text))

/** Returns the last four characters of a secret, which are of its checksum. They tell an operator which key it is. */
export const hintOf = (secret: string): string => secret.slice(-4)

/** The remainders of the CRC-32 of single bytes (RFC 1952 §8). */
const crcTable = Uint32Array.from({ length: 256 }, (_, byte) => {
  let remainder = byte
  for (let bit = 0; bit < 8; bit++) remainder = remainder & 1 ? 0xedb88320 ^ (remainder >>> 1) : remainder >>> 1
  return remainder
})

/** Returns the CRC-32 of an ASCII text. For a secret it takes 73 ns, and `zlib.crc32`, which only Node has, 110 ns. */
const crc32 = (text: string): number => {
  let remainder = ~0
  for (let i = 0; i < text.length; i++) {
    remainder = (crcTable[(remainder ^ text.charCodeAt(i)) & 0xff] ?? 0) ^ (remainder >>> 8)
  }
  return ~remainder >>> 0
}

/** Returns the CRC-32 of `secret` in base62. Its 32 bits fit into six characters, which hold 35 bits. */
const checksum = (secret: string): string => {
  let remainder = crc32(secret)
  let text = ""
  for (let i = 0; i < checksumLength; i++) {
    text = base62.charAt(remainder % base62.length) + text
    remainder = Math.floor(remainder / base62.length)
  }
  return text
}

const format = new RegExp(`^${prefix}([0-9A-Za-z]{${randomLength}})([0-9A-Za-z]{${checksumLength}})$`)

/** Returns whether `text` has the form of a secret and a correct checksum. */
export const isWellFormed = (text: string): boolean => {
  const match = format.exec(text)
  return match !== null && checksum(match[1] ?? "") === match[2]
}
