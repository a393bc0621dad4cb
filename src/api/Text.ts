/** Checks of texts that the service stores. */
import { Schema } from "effect"

/**
 * Checks that a text has no U+0000 and no lone surrogates.
 *
 * PostgreSQL cannot store U+0000, and UTF-8 cannot encode lone surrogates.
 */
export const isStorable = Schema.makeFilter((text: string) => text.isWellFormed() && !text.includes("\0"), {
  expected: "a string without U+0000 and lone surrogates"
})

/** Checks that a text has at most `max` characters: Unicode code points, as in `maxLength` of JSON Schema. */
export const hasAtMost = (max: number) =>
  Schema.makeFilter((text: string) => text.length <= max || Array.from(text.slice(0, 2 * max + 1)).length <= max, {
    expected: `a string of at most ${max.toLocaleString("en")} characters`
  })
