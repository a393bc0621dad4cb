/**
 * The format of API key secrets: `psk_`, 32 random base62 characters (190 bits), and a checksum of 6 characters.
 *
 * The checksum lets the service reject a mistyped key without a lookup, and secret scanners recognise real keys.
 */

const prefix = "psk_"
const checksumLength = 6

export const randomLength = 32

export const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

/** CRC-32 (RFC 1952 §8) of an ASCII text. `zlib.crc32` is missing in browsers, where the test service also runs. */
const crc32 = (text: string): number => {
  let remainder = ~0
  for (let i = 0; i < text.length; i++) {
    remainder ^= text.charCodeAt(i)
    for (let bit = 0; bit < 8; bit++) remainder = remainder & 1 ? 0xedb88320 ^ (remainder >>> 1) : remainder >>> 1
  }
  return ~remainder >>> 0
}

/** The CRC-32 in base62: 32 bits fit into six characters. */
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

export const withChecksum = (text: string): string => prefix + text + checksum(text)

export const isWellFormed = (text: string): boolean => {
  const match = format.exec(text)
  return match !== null && checksum(match[1] ?? "") === match[2]
}

/** Finds a secret, whole or truncated, in a text such as `Authorization: Bearer psk_…`. */
export const findSecret = (text: string): string | undefined => /psk_[0-9A-Za-z]*/.exec(text)?.[0]
