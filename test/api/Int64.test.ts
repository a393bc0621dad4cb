/** Tests that 64-bit integers stay exact in JSON. */
import { assert, describe, it } from "@effect/vitest"
import { Option, Schema } from "effect"
import * as fc from "fast-check"
import { exactJson, Int64 } from "../../src/api/Int64.ts"
import { Pets, PetsJson } from "../../src/api/Pets.ts"

describe("exactJson", () => {
  const character = fc.oneof(
    fc.constantFrom(`"`, "\\", "\n", "\u0001", "\u001f", "\u007f", "\u2028", "\u{10000}", "🐕"),
    fc.string({ unit: "grapheme", minLength: 1, maxLength: 1 }).filter((text) => !text.includes("\0"))
  )
  const name = fc.string({ unit: character })
  const bounds = [0n, 2n ** 53n - 1n, 2n ** 53n, -(2n ** 53n), 2n ** 63n - 1n, -(2n ** 63n)]
  const id = fc.oneof(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }), fc.constantFrom(...bounds))

  it("encodes any pets, as the faster PetsJson does, and decodes the same pets from the text", () => {
    const status = fc.constantFrom("available", "pending", "sold")
    const requiredKeys = ["id", "name", "categoryId"] as const
    const pet = fc.record({ id, name, categoryId: id, status }, {
      requiredKeys: [...requiredKeys],
      noNullPrototype: true
    })
    fc.assert(fc.property(fc.array(pet), (pets) => {
      const text = Schema.encodeSync(PetsJson)(pets)
      assert.strictEqual(text, Schema.encodeSync(exactJson(Pets))(pets))
      assert.deepStrictEqual(Schema.decodeSync(exactJson(Pets))(text), pets)
    }))
  })

  class Point extends Schema.Class<Point>("Point")({ x: Schema.Int, y: Schema.optionalKey(Int64) }) {}

  /** A value of each kind that JSON has no type for, beside integers. */
  const Everything = Schema.Struct({
    number: Schema.Finite,
    id: Int64,
    date: Schema.Date,
    option: Schema.Option(Int64),
    map: Schema.ReadonlyMap(Schema.String, Int64),
    point: Point,
    union: Schema.Union([Schema.Struct({ kind: Schema.Literal("a"), id: Int64 }), Schema.String, Schema.Null]),
    nested: Schema.Array(Schema.Record(Schema.String, Schema.Array(Int64)))
  })

  it("decodes what it has encoded, for every kind of schema", () => {
    const double = fc.double({ noNaN: true, noDefaultInfinity: true }).map((number) => number === 0 ? 0 : number)
    const text = name.filter((text) => text !== "__proto__")
    const everything = fc.record({
      number: fc.oneof(double, fc.constantFrom(2 ** 53 + 2, 1e20, 1e300, 0.1, 5e-324)),
      id,
      date: fc.date({ noInvalidDate: true }),
      option: fc.option(id).map(Option.fromNullishOr),
      map: fc.array(fc.tuple(text, id)).map((entries) => new Map(entries)),
      point: fc.record({ x: fc.nat(), y: id }).map((fields) => new Point(fields)),
      union: fc.oneof(fc.record({ kind: fc.constant("a" as const), id }), text, fc.constant(null)),
      nested: fc.array(fc.dictionary(text, fc.array(id), { noNullPrototype: true }))
    }, { noNullPrototype: true })
    const codec = exactJson(Everything)
    fc.assert(fc.property(everything, (value) => {
      assert.deepStrictEqual(Schema.decodeSync(codec)(Schema.encodeSync(codec)(value)), value)
    }))
  })

  const idOf = (text: string) => Schema.decodeSync(exactJson(Schema.Struct({ id: Int64 })))(`{"id":${text}}`).id

  it("takes a number for an integer in any notation", () => {
    const thousand = ["1000", "1000.0", "1e3", "1.0e+3", "1000.00000000000000000000", "0.000000000000000000001e24"]
    for (const text of [...thousand, `1${"0".repeat(100_000)}e-99997`]) assert.strictEqual(idOf(text), 1000n)
    assert.strictEqual(idOf("0.0000000000000000"), 0n)
  })

  it("rejects a number that is no 64-bit integer, and any other value, in linear time", () => {
    const range = "a whole number from -9223372036854775808 to 9223372036854775807"
    const outOfRange = [
      "1.00000000000000000001",
      "4503599627370497.1",
      "1e-400",
      "9223372036854775808",
      "1e19",
      "1e400"
    ]
    // With time quadratic in the number of zeros, the last one would take half an hour.
    const huge = ["1e999999999999", "1e-999999999999", `1${"0".repeat(3_000_000)}1`]
    for (const text of [...outOfRange, ...huge]) assert.throws(() => idOf(text), range)
    for (const [text, kind] of [["1.5", "fraction"], [`"1"`, "string"], ["true", "boolean"]] as const) {
      assert.throws(() => idOf(text), `${range}, not a ${kind}`)
    }
    for (const [text, kind] of [["null", "null"], ["[1]", "an array"], ["{}", "an object"]] as const) {
      assert.throws(() => idOf(text), `${range}, not ${kind}`)
    }
  })
})
