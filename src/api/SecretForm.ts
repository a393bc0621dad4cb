/**
 * The form of the secrets of API keys.
 *
 * A secret is `psk_`, 32 random base62 characters (190 bits) and a checksum of 6 characters. With the checksum, the
 * service rejects a mistyped key without a lookup, and a secret scanner recognizes a real key.
 */

const prefix = "psk_"
const checksumLength = 6

/** The number of random characters in a secret. */
export const randomLength = 32

export const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

/** Returns the CRC-32 (RFC 1952 §8) of an ASCII text. Only Node has `zlib.crc32`. */
const crc32 = (text: string): number => {
  let remainder = ~0
  for (let i = 0; i < text.length; i++) {
    remainder ^= text.charCodeAt(i)
    for (let bit = 0; bit < 8; bit++) remainder = remainder & 1 ? 0xedb88320 ^ (remainder >>> 1) : remainder >>> 1
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

/** Returns the secret that has these random characters. */
export const withChecksum = (text: string): string => prefix + text + checksum(text)

/** Returns whether `text` has the form of a secret and a correct checksum. */
export const isWellFormed = (text: string): boolean => {
  const match = format.exec(text)
  return match !== null && checksum(match[1] ?? "") === match[2]
}

/** Returns the secret, or the part of one, that a text such as `Authorization: Bearer psk_…` contains. */
export const findSecret = (text: string): string | undefined => /psk_[0-9A-Za-z]*/.exec(text)?.[0]
