import { hash } from "node:crypto"

/**
 * A fast hash suffices, because a secret has 190 random bits. This function has its own file, so that browsers can load
 * the in-memory service without `node:crypto`.
 */
export const hashSecret = (secret: string): string => hash("sha256", secret)
