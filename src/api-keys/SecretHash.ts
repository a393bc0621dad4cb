/** Hashes the secrets of API keys. It imports Node, which the service in memory must not. */
import { hash } from "node:crypto"

/**
 * Returns the SHA-256 of a secret, in hexadecimal: the database stores nothing else of it. A slow hash would cost time
 * and add no protection, because 190 random bits cannot be guessed.
 */
export const hashSecret = (secret: string): string => hash("sha256", secret)
