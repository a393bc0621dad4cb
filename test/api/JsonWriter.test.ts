/** Tests that compiled JSON writers write the same JSON as the encoder of the schema. */
import { assert, describe, it } from "@effect/vitest"
import { Exit, Schema } from "effect"
import * as fc from "fast-check"
import { Int64 } from "../../src/api/Int64.ts"
import { compileJsonWriter } from "../../src/api/JsonWriter.ts"
import { isStorable } from "../../src/api/Text.ts"

/** A schema with every kind of schema from which a writer can be compiled. */
const Order = Schema.Struct({
  id: Int64,
  "odd \"name\"": Schema.String.check(isStorable),
  state: Schema.optionalKey(Schema.Literals(["open", "clo\"sed"])),
  lines: Schema.Array(Schema.Struct({ text: Schema.String, count: Schema.optionalKey(Int64) }))
})

const text = fc.oneof(
  fc.string({ unit: "binary" }),
  fc.string({ unit: "grapheme" }),
  fc.constantFrom("\ud800", "\"", "\\", "\u0000", "\u007f", "\u2028", "/")
)
const int64 = fc.oneof(
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  fc.constantFrom(0n, 2n ** 53n, -(2n ** 53n) - 1n)
)
const order = fc.record({
  id: int64,
  "odd \"name\"": text,
  state: fc.constantFrom("open", "clo\"sed"),
  lines: fc.array(fc.record({ text, count: int64 }, { requiredKeys: ["text"] }), { maxLength: 3 })
}, { requiredKeys: ["id", "odd \"name\"", "lines"] })
/** Orders in which one field has an arbitrary value, which is mostly invalid. */
const orderWithAnyField = fc.tuple(
  order,
  fc.constantFrom("id", "odd \"name\"", "state", "lines"),
  fc.anything({ withBigInt: true })
).map(([valid, name, other]) => ({ ...valid, [name]: other }))

const encode = Schema.encodeUnknownExit(Order)
const toJson = (value: unknown): string =>
  JSON.stringify(value, (_, part: unknown) => typeof part === "bigint" ? JSON.rawJSON(String(part)) : part)

describe("A compiled JSON writer", () => {
  it("writes the JSON that the schema encodes, and returns undefined for values that the schema rejects", () => {
    const write = compileJsonWriter(Order.ast) ?? assert.fail("There is no writer")
    fc.assert(
      fc.property(fc.oneof(order, orderWithAnyField), (value) => {
        const encoded = encode(value)
        const written = write(value)
        if (written === undefined) return
        assert.isTrue(Exit.isSuccess(encoded))
        if (Exit.isSuccess(encoded)) assert.strictEqual(written, toJson(encoded.value))
      }),
      { numRuns: 20_000 }
    )
    fc.assert(fc.property(order, (value) => {
      assert.strictEqual(write(value) === undefined, Exit.isFailure(encode(value)))
    }))
  })

  it("is not compiled for unsupported schemas, such as those with a transformation", () => {
    const others = [
      Schema.DateFromString,
      Schema.Finite,
      Schema.Struct({ text: Schema.optional(Schema.String) }),
      Schema.Struct({ at: Schema.DateFromString }),
      Schema.Record(Schema.String, Schema.String),
      Schema.Tuple([Schema.String]),
      Schema.Union([Schema.String, Int64]),
      Schema.NullOr(Schema.String)
    ]
    for (const schema of others) assert.isUndefined(compileJsonWriter(schema.ast))
  })
})
