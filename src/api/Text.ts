/** Checks that a text can be stored. */
import { Schema } from "effect"

/**
 * Checks that a text has no U+0000 and no lone surrogates.
 *
 * PostgreSQL cannot store U+0000, and UTF-8 cannot encode lone surrogates.
 */
export const isStorable = Schema.makeFilter((text: string) => text.isWellFormed() && !text.includes("\0"), {
  expected: "a string without U+0000 and lone surrogates"
})
