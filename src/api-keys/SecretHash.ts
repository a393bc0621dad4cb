import { hash } from "node:crypto"

/**
 * SHA-256 in hexadecimal. A slow hash would not help, because 190 random bits cannot be guessed. In its own file,
 * because the in-memory service must not import Node.
 */
export const hashSecret = (secret: string): string => hash("sha256", secret)
