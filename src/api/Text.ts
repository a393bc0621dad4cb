import { Schema } from "effect"

/** PostgreSQL does not store U+0000, and UTF-8 has no lone surrogates. */
export const isStorable = Schema.makeFilter((text: string) => text.isWellFormed() && !text.includes("\0"), {
  expected: "a string without U+0000 and lone surrogates"
})
