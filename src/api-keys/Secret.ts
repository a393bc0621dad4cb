/**
 * The secret of an API key: `psk_`, 32 random base62 characters (190 bits) and a checksum of 6. The checksum rejects a
 * mistyped key without a lookup and lets a scanner recognize a real one. Only the SHA-256 is stored: against 190 random
 * bits a slow hash would add only time.
 */
import { Effect } from "effect"
import { SecureRandom } from "effect/crypto"
import * as Crypto from "node:crypto"
import { crc32 } from "node:zlib"

const prefix = "psk_"
const randomLength = 32
const checksumLength = 6
const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

/** Returns random base62 text, with 5.95 bits per character. */
export const randomText = Effect.fnUntraced(function*(length: number) {
  const random = yield* SecureRandom.SecureRandom
  const indices = yield* Effect.replicateEffect(random.intBetween(0, base62.length - 1), length)
  return indices.map((index) => base62.charAt(index)).join("")
})

/** Returns a new random secret. */
export const make = Effect.map(randomText(randomLength), (text) => prefix + text + checksum(text))

/** Returns the CRC-32 in base62: six characters hold 35 bits. */
const checksum = (secret: string): string => {
  let rest = crc32(secret)
  let text = ""
  for (let i = 0; i < checksumLength; i++) {
    text = base62.charAt(rest % base62.length) + text
    rest = Math.floor(rest / base62.length)
  }
  return text
}

const format = new RegExp(`^${prefix}([0-9A-Za-z]{${randomLength}})([0-9A-Za-z]{${checksumLength}})$`)

/** Whether `text` has the form and the checksum of a secret. */
export const isWellFormed = (text: string): boolean => {
  const match = format.exec(text)
  return match !== null && checksum(match[1] ?? "") === match[2]
}

/** Returns the SHA-256 of a secret in hexadecimal, which is what is stored. */
export const hash = (secret: string): string => Crypto.hash("sha256", secret)
