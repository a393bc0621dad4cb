import { Effect } from "effect"
import { SecureRandom } from "effect/crypto"
import { base62, randomLength, withChecksum } from "../api/SecretForm.ts"

export const randomText = Effect.fnUntraced(function*(length: number) {
  const random = yield* SecureRandom.SecureRandom
  const indices = yield* Effect.replicateEffect(random.intBetween(0, base62.length - 1), length)
  return indices.map((index) => base62.charAt(index)).join("")
})

export const newSecret = Effect.map(randomText(randomLength), withChecksum)

/** The last four characters of a secret (part of its checksum), so operators can recognise the key. */
export const hintOf = (secret: string): string => secret.slice(-4)
