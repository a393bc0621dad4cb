import { hash } from "node:crypto"

/**
 * Returns the SHA-256 in hexadecimal. A slow hash would not help, because 190 random bits cannot be guessed. This file
 * is separate, because the in-memory service also runs in browsers and must not import Node.
 */
export const hashSecret = (secret: string): string => hash("sha256", secret)
