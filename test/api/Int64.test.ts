import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Effect, Schema } from "effect"
import * as fc from "fast-check"
import { exactJson, Int64, Int64FromString } from "../../src/api/Int64.ts"
import { Pet, Pets, PetsJson } from "../../src/api/Pets.ts"

const range = "a whole number from -9223372036854775808 to 9223372036854775807"

it("Int64FromString reads a 64-bit integer from digits, as in a parameter or a column, and writes the same digits", () => {
  for (const text of ["9223372036854775807", "-9223372036854775808", "0"]) {
    const integer = Schema.decodeSync(Int64FromString)(text)
    assert.strictEqual(integer, BigInt(text))
    assert.strictEqual(Schema.encodeSync(Int64FromString)(integer), text)
  }
  for (const text of ["9223372036854775808", "1.0", "1e3", "+1", " 1", ""]) {
    assert.throws(() => Schema.decodeSync(Int64FromString)(text), range, text)
  }
})

describe("exactJson", () => {
  const character = fc.oneof(
    fc.constantFrom(`"`, "\\", "\n", "\u0001", "\u001f", "\u007f", "\u2028", "\u{10000}", "🐕"),
    fc.string({ unit: "grapheme", minLength: 1, maxLength: 1 }).filter((text) => !text.includes("\0"))
  )
  const name = fc.string({ unit: character })
  const bounds = [0n, 2n ** 53n - 1n, 2n ** 53n, -(2n ** 53n), 2n ** 63n - 1n, -(2n ** 63n)]
  const id = fc.oneof(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }), fc.constantFrom(...bounds))

  it("encodes any pets, as the faster PetsJson does, and decodes the same pets from the text", async () => {
    const samples = await Effect.runPromise(Arbitrary.sampleEffect(Arbitrary.schema(Pet), { count: 100, seed: "pets" }))
    const others = fc.record({ id, name })
    const pet = fc.tuple(fc.constantFrom(...samples), others).map(([one, other]) => ({ ...one, ...other }))
    fc.assert(fc.property(fc.array(pet), (pets) => {
      const text = Schema.encodeSync(PetsJson)(pets)
      assert.strictEqual(text, Schema.encodeSync(exactJson(Pets))(pets))
      assert.deepStrictEqual(Schema.decodeSync(exactJson(Pets))(text), pets)
    }))
  })

  const idOf = (text: string) => Schema.decodeSync(exactJson(Schema.Struct({ id: Int64 })))(`{"id":${text}}`).id

  it("decodes a number in any notation exactly if it is a 64-bit integer, and fails otherwise", () => {
    const text = fc.stringMatching(/^-?(0|[1-9]\d{0,20})(\.\d{1,6})?(e[-+]?[12]?\d)?$/)
    const isExact = (text: string) => {
      const [, minus, digits = "", fraction = "", exponent] = /^(-)?(\d+)\.?(\d*)e?(.*)$/.exec(text) ?? []
      // The test computes the same number as a fraction of two integers.
      const places = BigInt(Number(exponent) - fraction.length)
      const numerator = BigInt(digits + fraction) * (places > 0n ? 10n ** places : 1n) * (minus ? -1n : 1n)
      const denominator = places < 0n ? 10n ** -places : 1n
      const value = numerator / denominator
      if (numerator % denominator === 0n && BigInt.asIntN(64, value) === value) assert.strictEqual(idOf(text), value)
      else assert.throws(() => idOf(text), range)
    }
    fc.assert(fc.property(text, isExact), { numRuns: 1_000 })
    assert.strictEqual(idOf("1000.00000000000000000000"), 1000n)
    assert.strictEqual(idOf(`1${"0".repeat(100_000)}e-99997`), 1000n)
  })

  it("rejects a number that is no 64-bit integer, and any other value, in linear time", () => {
    const others = ["1.00000000000000000001", "4503599627370497.1", "1e-400", "9223372036854775808", "1e19", "1e400"]
    // With time quadratic in the number of zeros, the last one would take half an hour.
    const huge = ["1e999999999999", "1e-999999999999", `1${"0".repeat(3_000_000)}1`]
    for (const text of [...others, ...huge]) assert.throws(() => idOf(text), range)
    const kinds = { "1.5": "a fraction", "\"1\"": "a string", true: "a boolean", null: "null" }
    for (const [text, kind] of Object.entries({ ...kinds, "[1]": "an array", "{}": "an object" })) {
      assert.throws(() => idOf(text), `${range}, not ${kind}`)
    }
  })
})
