import { hash } from "node:crypto"

/**
 * The SHA-256 of a secret, in hexadecimal. A slow hash would add no protection, because 190 random bits cannot be
 * guessed. A file of its own, because the service in memory must not import Node.
 */
export const hashSecret = (secret: string): string => hash("sha256", secret)
