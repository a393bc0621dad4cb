/**
 * The secret of an API key is a prefix, 32 random base62 characters (190 bits), and a checksum that detects typos
 * without a lookup. Admin tokens have a prefix too, if the service made them.
 */
import { adminTokenPrefix, keyPrefix } from "./Brand.ts"

const checksumLength = 6
export const randomLength = 32
export const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

/** Computes the CRC-32 of an ASCII text (RFC 1952 §8). Does not use `zlib.crc32`, which browsers do not have. */
const crc32 = (text: string): number => {
  let remainder = ~0
  for (let i = 0; i < text.length; i++) {
    remainder ^= text.charCodeAt(i)
    for (let bit = 0; bit < 8; bit++) remainder = remainder & 1 ? 0xedb88320 ^ (remainder >>> 1) : remainder >>> 1
  }
  return ~remainder >>> 0
}

const checksum = (random: string): string => {
  const crc = crc32(random)
  const places = Array.from({ length: checksumLength }, (_, i) => base62.length ** (checksumLength - 1 - i))
  return places.map((place) => base62.charAt(Math.floor(crc / place) % base62.length)).join("")
}

const format = new RegExp(`^${keyPrefix}[0-9A-Za-z]{${randomLength + checksumLength}}$`)

export const withChecksum = (random: string): string => keyPrefix + random + checksum(random)

export const isWellFormed = (secret: string): boolean =>
  format.test(secret) && withChecksum(secret.slice(keyPrefix.length, -checksumLength)) === secret

/** Whether a text begins like an admin token that the service made, which works only on the management port. */
export const isAdminToken = (text: string): boolean => text.startsWith(adminTokenPrefix)

/** Finds the whole or truncated secret of an API key in a text such as `Authorization: Bearer psk_…`. */
export const findSecret = (text: string): string | undefined => new RegExp(`${keyPrefix}[0-9A-Za-z]*`).exec(text)?.[0]

const anySecret = new RegExp(`(${keyPrefix}|${adminTokenPrefix})\\w+`, "gi")

/** Further texts that `redactSecrets` redacts, such as an operator's own `ADMIN_TOKEN`, which may lack the prefix. */
const chosenSecrets = new Set<string>()
const minChosenLength = 16

const decode = (text: string): string =>
  text.replaceAll(/%(?:25)*([\da-f]{2})/gi, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)))

/** Makes `redactSecrets` redact `secret` too, unless `secret` is so short that ordinary text could contain it. */
export const redactAlso = (secret: string): void => {
  for (const text of [secret, decode(secret)]) if (text.length >= minChosenLength) chosenSecrets.add(text)
}

const redactIn = (text: string): string => {
  let redacted = text
  for (const secret of chosenSecrets) redacted = redacted.replaceAll(secret, "…")
  return redacted.replaceAll(anySecret, "$1…")
}

/**
 * Redacts secrets, also percent-encoded ones (`%5F`, `%255F` and `%25255F` are `_`). If it finds secrets in the decoded
 * text, returns that text.
 */
export const redactSecrets = (text: string): string => {
  const decoded = decode(text)
  const redacted = redactIn(decoded)
  return redacted === decoded && decoded !== text ? redactIn(text) : redacted
}
