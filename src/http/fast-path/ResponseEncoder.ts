/** Encodes the values and errors of handlers as responses, by the schemas that an endpoint declares for them. */
import { Exit, Schema, SchemaAST } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiSchema } from "effect/http-api"

/**
 * HttpApi's annotations on the schema of a response. They have no public accessor. Without them a schema does not tell
 * its content type, nor which part of its encoded form is headers. `test/http/fast-path` fails if they change.
 */
interface Encoding {
  readonly _tag: string
  readonly contentType: string
}
interface WithHeaders {
  readonly body: Schema.Top
  readonly bodyCodec: Schema.Top
  readonly headersCodec: Schema.Top
  readonly transformation: {
    readonly encode: (value: unknown) => { readonly body: unknown; readonly headers: unknown }
  }
}
const encodingOf = SchemaAST.resolveAt<Encoding>("~httpApiEncoding")
const withHeadersOf = SchemaAST.resolveAt<WithHeaders>("~httpApiWithHeaders")

const json: Encoding = { _tag: "Json", contentType: "application/json" }

/** Encodes a value. Returns `undefined` for a value of another schema. */
export type Encode = (value: unknown) => HttpServerResponse.HttpServerResponse | undefined

interface Options {
  readonly body: SchemaAST.ParseOptions | undefined
  readonly headers: SchemaAST.ParseOptions | undefined
}

/**
 * Returns the encoder of a schema. The cast is safe because no schema needs services: the layers of the handlers would
 * require them. The types of `HttpApi.reflect` lose this fact.
 */
const encoderOf = (schema: Schema.Top, options?: SchemaAST.ParseOptions) =>
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  Schema.encodeUnknownExit(schema as unknown as Schema.Codec<unknown>, options)

/** Returns the encoder of a body to text or to an empty body, or `undefined` if HttpApi must encode it. */
const compileBody = (schema: Schema.Top, codec: Schema.Top, status: number, options: Options) => {
  const { _tag, contentType } = encodingOf(schema.ast) ?? json
  if (HttpApiSchema.isNoContent(codec.ast)) {
    return (_: unknown, headers?: Readonly<Record<string, string>>) => HttpServerResponse.empty({ status, headers })
  }
  if (_tag !== "Json" && _tag !== "Text") return undefined
  const encode = encoderOf(codec, options.body)
  return (value: unknown, headers?: Readonly<Record<string, string>>) => {
    const encoded = encode(value)
    if (Exit.isFailure(encoded)) return undefined
    const { value: part } = encoded
    if (part === undefined) return HttpServerResponse.empty({ status, headers })
    const body = _tag === "Text" && typeof part === "string" ? part : JSON.stringify(part)
    const length = String(Buffer.byteLength(body))
    return HttpServerResponse.raw(body, {
      status,
      headers: { "content-type": contentType, "content-length": length, ...headers }
    })
  }
}

const compile = (schema: Schema.Top, status: number, isOnly: boolean, options: Options): Encode | undefined => {
  if (HttpApiSchema.isWithHeaders(schema)) return undefined
  const withHeaders = withHeadersOf(schema.ast)
  if (withHeaders === undefined) {
    const encodeBody = compileBody(schema, schema, status, options)
    return encodeBody && ((value) => encodeBody(value))
  }
  // The type of the handler guarantees that its value fits an only schema. Its parts are checked as they are encoded.
  const isValue = isOnly ? () => true : Schema.is(Schema.toType(schema))
  const encodeBody = compileBody(withHeaders.body, withHeaders.bodyCodec, status, options)
  const encodeHeaders = encoderOf(withHeaders.headersCodec, options.headers)
  return encodeBody && ((value) => {
    if (!isValue(value)) return undefined
    const { body, headers } = withHeaders.transformation.encode(value)
    const encoded = encodeHeaders(headers)
    return Exit.isFailure(encoded) ? undefined : encodeBody(body, definedHeaders(encoded.value))
  })
}

/** Removes optional headers that encode to `undefined`. */
const definedHeaders = (encoded: unknown): Readonly<Record<string, string>> | undefined => {
  let headers: Record<string, string> | undefined
  for (const [name, value] of Object.entries(encoded ?? {})) {
    if (value === undefined) continue
    headers ??= {}
    headers[name] = String(value)
  }
  return headers
}

/**
 * Compiles an encoder that uses the first of `schemas` that a value fits. Returns `undefined` if HttpApi must encode
 * one of them: a stream, an upgrade, a form, bytes, or `HttpApiSchema.WithHeaders`.
 */
export const compileResponse = (
  schemas: ReadonlyArray<readonly [schema: Schema.Top, status: number | undefined]>,
  options: Options
): Encode | undefined => {
  const encoders: Array<Encode> = []
  for (const [schema, status] of schemas) {
    const encode = status === undefined ? undefined : compile(schema, status, schemas.length === 1, options)
    if (encode === undefined) return undefined
    encoders.push(encode)
  }
  return (value) => {
    for (const encode of encoders) {
      const response = encode(value)
      if (response !== undefined) return response
    }
    return undefined
  }
}
