/**
 * Compiles a schema to a function that writes values directly as JSON text.
 *
 * The function takes a quarter of the time that encoding a value and serializing the result take.
 */
import { SchemaAST } from "effect"

const defaultOptions = {}

/** Returns the JSON text of a value, or `undefined` if the value does not conform to the schema. */
export type JsonWriter = (value: unknown) => string | undefined

/**
 * Compiles the JSON writer of a schema, or returns `undefined` if the schema is not supported.
 *
 * Supported are strings, string literals, int64 integers, arrays, and structs whose first field is required. Each can
 * have at most one check. Schemas with a transformation are not supported, since their JSON differs from their values.
 */
export const compileJsonWriter = (ast: SchemaAST.AST): JsonWriter | undefined => {
  const write = ast.encoding === undefined ? compileUnchecked(ast) : undefined
  if (write === undefined || ast.checks === undefined) return write
  const [filter, ...others] = ast.checks
  if (filter._tag !== "Filter" || others.length > 0) return undefined
  return (value) => {
    const text = write(value)
    return text === undefined || filter.run(value, ast, defaultOptions) !== undefined ? undefined : text
  }
}

/** Compiles a writer that ignores the checks of the schema at its top level. */
const compileUnchecked = (ast: SchemaAST.AST): JsonWriter | undefined => {
  if (SchemaAST.isString(ast)) return writeString
  if (SchemaAST.isDeclaration(ast)) return ast.annotations?.format === "int64" ? writeInt64 : undefined
  if (SchemaAST.isUnion(ast)) return compileLiterals(ast)
  if (SchemaAST.isArrays(ast)) return compileArray(ast)
  return SchemaAST.isObjects(ast) ? compileStruct(ast) : undefined
}

/** Matches characters that JSON must escape, and surrogates, which JSON must escape if they are not in a pair. */
// oxlint-disable-next-line no-control-regex
const mayNeedEscapes = /["\\\u0000-\u001f\ud800-\udfff]/

/** Writes a string. Most need no escapes, and the test for escapes takes a third of the time of `JSON.stringify`. */
const writeString: JsonWriter = (value) =>
  typeof value !== "string" ? undefined : mayNeedEscapes.test(value) ? JSON.stringify(value) : `"${value}"`

/** Writes an int64, as a number if it is exact: formatting a number takes a third of the time of a `bigint`. */
const writeInt64: JsonWriter = (value) => {
  if (typeof value !== "bigint") return undefined
  const double = Number(value)
  if (Number.isSafeInteger(double)) return String(double)
  return BigInt.asIntN(64, value) === value ? String(value) : undefined
}

/** Compiles the writer of a union of string literals. */
const compileLiterals = ({ types }: SchemaAST.Union): JsonWriter | undefined => {
  const texts = new Map<unknown, string>()
  for (const type of types) {
    if (!SchemaAST.isLiteral(type) || typeof type.literal !== "string") return undefined
    texts.set(type.literal, JSON.stringify(type.literal))
  }
  return (value) => texts.get(value)
}

/** Compiles the writer of an array whose items have one schema. Tuples are not supported. */
const compileArray = ({ elements, rest }: SchemaAST.Arrays): JsonWriter | undefined => {
  const [item, ...others] = rest
  const write = item === undefined || elements.length > 0 || others.length > 0 ? undefined : compileJsonWriter(item)
  return write && ((value) => {
    if (!Array.isArray(value)) return undefined
    let text = ""
    for (const element of value) {
      const written = write(element)
      if (written === undefined) return undefined
      text += text === "" ? written : `,${written}`
    }
    return `[${text}]`
  })
}

/** Compiles the writer of a struct. The comma before a field is fixed, so the first field must be required. */
const compileStruct = ({ indexSignatures, propertySignatures }: SchemaAST.Objects): JsonWriter | undefined => {
  if (indexSignatures.length > 0) return undefined
  const fields: Array<{ name: string; prefix: string; isOptional: boolean; write: JsonWriter }> = []
  for (const { name, type } of propertySignatures) {
    const write = compileJsonWriter(type)
    if (write === undefined || typeof name !== "string") return undefined
    const isOptional = SchemaAST.isOptional(type)
    if (isOptional && fields.length === 0) return undefined
    fields.push({ name, prefix: `${fields.length === 0 ? "{" : ","}${JSON.stringify(name)}:`, isOptional, write })
  }
  return (value) => {
    if (!isRecord(value)) return undefined
    let text = ""
    for (const { isOptional, name, prefix, write } of fields) {
      const field = value[name]
      if (field === undefined && isOptional && !Object.hasOwn(value, name)) continue
      const written = write(field)
      if (written === undefined) return undefined
      text += prefix + written
    }
    return fields.length === 0 ? "{}" : `${text}}`
  }
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)
