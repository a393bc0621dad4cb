/** Tests that 64-bit integers stay exact in texts and in JSON. */
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as fc from "fast-check"
import { exactJson, parseInteger } from "../../src/api/Int64.ts"
import { Pets, PetsJson } from "../../src/api/Pets.ts"

const int64 = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n })

describe("parseInteger", () => {
  it("parses the integer that a JSON number denotes, and returns undefined for other numbers", () => {
    const text = fc.stringMatching(/^-?(0|[1-9]\d{0,20})(\.\d{1,6})?(e-?[12]?\d)?$/)
    fc.assert(fc.property(text, (text) => {
      const [, minus, digits = "", fraction = "", exponent] = /^(-)?(\d+)\.?(\d*)e?(.*)$/.exec(text) ?? []
      // The test computes the same number as a fraction of two integers.
      const places = BigInt(Number(exponent) - fraction.length)
      const numerator = BigInt(digits + fraction) * (places > 0n ? 10n ** places : 1n) * (minus ? -1n : 1n)
      const denominator = places < 0n ? 10n ** -places : 1n
      const value = numerator / denominator
      const expected = numerator % denominator === 0n && String(value).replace("-", "").length <= 19 ? value : undefined
      assert.strictEqual(parseInteger(text), expected)
    }))
  })

  it("takes linear time for a huge exponent and for very many digits", () => {
    for (const text of ["1e999999999999", "1e-999999999999"]) assert.isUndefined(parseInteger(text))
    assert.strictEqual(parseInteger(`1${"0".repeat(100_000)}e-100000`), 1n)
    // With time quadratic in the number of zeros, this would take half an hour.
    assert.isUndefined(parseInteger(`1${"0".repeat(3_000_000)}1`))
  })
})

describe("exactJson", () => {
  const character = fc.oneof(
    fc.constantFrom(`"`, "\\", "\n", "\u0001", "\u001f", "\u007f", "\u2028", "\u{10000}", "🐕"),
    fc.string({ unit: "grapheme", minLength: 1, maxLength: 1 }).filter((text) => !text.includes("\0"))
  )
  const id = fc.oneof(int64, fc.constantFrom(0n, 2n ** 53n - 1n, 2n ** 53n, -(2n ** 53n), 2n ** 63n - 1n, -(2n ** 63n)))
  const status = fc.constantFrom("available", "pending", "sold")
  const pet = fc.record({ id, name: fc.string({ unit: character }), categoryId: id, status }, {
    requiredKeys: ["id", "name", "categoryId"],
    noNullPrototype: true
  })

  it("encodes any pets, as the faster PetsJson does, and decodes the same pets from the text", () => {
    fc.assert(fc.property(fc.array(pet), (pets) => {
      const text = Schema.encodeSync(PetsJson)(pets)
      assert.strictEqual(text, Schema.encodeSync(exactJson(Pets))(pets))
      assert.deepStrictEqual(Schema.decodeSync(exactJson(Pets))(text), pets)
    }))
  })

  const parse = Schema.decodeUnknownSync(exactJson(Schema.Unknown))
  const stringify = Schema.encodeUnknownSync(exactJson(Schema.Unknown))
  const { json } = fc.letrec((tie) => ({
    json: fc.oneof(
      { depthSize: "small" },
      fc.string(),
      fc.constantFrom(true, false, null, 999_999_999_999_999n, 10n ** 15n),
      id,
      fc.bigInt({ min: -9n, max: 9n }),
      fc.array(tie("json")),
      fc.dictionary(fc.oneof(fc.string(), fc.constantFrom("__proto__", "1", "a.b")), tie("json"))
    )
  }))

  it("serializes and parses every JSON value exactly, with and without integers beyond 2^53", () => {
    const write = (value: unknown): string =>
      JSON.stringify(value, (_, field: unknown) => typeof field === "bigint" ? JSON.rawJSON(String(field)) : field)
    const check = fc.property(json, (value) => {
      assert.strictEqual(stringify(value), write(value))
      assert.strictEqual(write(parse(write(value))), write(value))
    })
    fc.assert(check, { numRuns: 1_000 })
  })
})
