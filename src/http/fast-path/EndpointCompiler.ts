/**
 * Compiles one endpoint of an `HttpApi` to one effect: its middleware around its decoders, its handler and its
 * encoders.
 */
import { Context, Effect, Exit, Predicate, Schema, type SchemaAST, SchemaIssue } from "effect"
import { HttpMethod, HttpServerRequest, HttpServerResponse } from "effect/http"
import {
  HttpApi,
  HttpApiBuilder,
  type HttpApiEndpoint,
  HttpApiError,
  type HttpApiGroup,
  HttpApiMiddleware,
  type HttpApiSecurity
} from "effect/http-api"
import { IncomingMessage } from "node:http"
import { FastRequest } from "./FastRequest.ts"
import { compilePath, noQuery, type PathPattern, type Target } from "./PathPattern.ts"
import { compileResponse, type Encode } from "./ResponseEncoder.ts"

/** The input of a handler, without the payload. */
interface Input {
  readonly request: HttpServerRequest.HttpServerRequest
  readonly endpoint: HttpApiEndpoint.Top
  readonly group: HttpApiGroup.Top
  params?: unknown
  headers?: unknown
  query?: unknown
}

/** The input of the endpoint that serves the current request, as far as its head. */
class CurrentInput extends Context.Service<CurrentInput, Input>()("http/fast-path/CurrentInput") {}

type RequestServices = CurrentInput | HttpServerRequest.HttpServerRequest

/** A request whose head is decoded, and the effect that serves it. */
export interface Call {
  readonly endpoint: HttpApiEndpoint.Top
  readonly serve: Effect.Effect<HttpServerResponse.HttpServerResponse, never, RequestServices>
  /** Adds the services of the request that `serve` needs. */
  readonly addTo: <R>(context: Context.Context<R>) => Context.Context<R | RequestServices>
}

/** An endpoint that the fast path serves, and the rules for its requests. */
export interface CompiledEndpoint {
  readonly endpoint: HttpApiEndpoint.Top
  readonly pattern: PathPattern
  /** Whether requests of the endpoint have a JSON body. */
  readonly hasBody: boolean
  /** Returns `undefined` if the head of the request does not decode. */
  readonly call: (
    source: IncomingMessage,
    query: Target["query"],
    params: Readonly<Record<string, string>>
  ) => Call | undefined
}

/** A handler as `HttpApiBuilder.group` registers it in the service of its group. */
export interface Handler {
  readonly handler: (input: unknown) => Effect.Effect<unknown, unknown>
  readonly isRaw: boolean
  readonly uninterruptible: boolean
}

/** An endpoint as `HttpApi.reflect` describes it, with its handler and the services of its middleware. */
export interface Source {
  readonly group: HttpApiGroup.Top
  readonly endpoint: HttpApiEndpoint.Top
  readonly mergedAnnotations: Context.Context<never>
  readonly middleware: ReadonlySet<HttpApiMiddleware.AnyService>
  readonly successes: ReadonlyMap<number, ReadonlyArray<Schema.Top>>
  readonly errors: ReadonlyMap<number, ReadonlyArray<Schema.Top>>
  readonly handler: Handler
  readonly context: Context.Context<never>
}

type Served = Effect.Effect<HttpServerResponse.HttpServerResponse, unknown, RequestServices>
type Middleware = (httpEffect: Served, options: object) => Served

/**
 * Returns the decoder of a schema. The cast is safe because no schema needs services: the layers of the handlers would
 * require them. The types of `HttpApi.reflect` lose this fact.
 */
const decoderOf = (schema: Schema.Top, options: SchemaAST.ParseOptions | undefined) =>
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  Schema.decodeUnknownExit(schema as unknown as Schema.Codec<unknown>, options)

/** Returns a middleware in the form in which HttpApi applies it, or `undefined` if HttpApi must apply it. */
const middlewareOf = (key: HttpApiMiddleware.AnyService, context: Context.Context<never>): Middleware | undefined => {
  // The layers of the handlers required the service. `Context.getUnsafe` accepts its key only with the key's types.
  // Without `mapUnsafe` no endpoint with middleware could be compiled, and `test/http/fast-path` fails.
  const service: unknown = context.mapUnsafe.get(key.key)
  if (!HttpApiMiddleware.isSecurity(key)) return isMiddleware(service) ? service : undefined
  const [scheme, ...others] = Object.entries(key.security)
  // HttpApi tries several security schemes in turn.
  if (scheme === undefined || others.length > 0) return undefined
  const [name, security] = scheme
  if (security._tag === "ApiKey" && security.in === "query") return undefined
  const authenticate: unknown = Predicate.hasProperty(service, name) ? service[name] : undefined
  if (!isMiddleware(authenticate)) return undefined
  const decode = decodeCredential(security)
  return (httpEffect, options) =>
    Effect.flatMap(decode, (credential) => authenticate(httpEffect, { ...options, credential }))
}

/**
 * Decodes the credential of a request. A connection that repeats its `Authorization` gets the same credential object,
 * because decoding takes 2 µs and middleware may cache facts about the object. The credential lives as long as the
 * connection, like Node's copy of the last head.
 */
const decodeCredential = (security: HttpApiSecurity.HttpApiSecurity) => {
  // Only keys in a query need more than the request.
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  const decode = HttpApiBuilder.securityDecode(security) as Effect.Effect<
    unknown,
    never,
    HttpServerRequest.HttpServerRequest
  >
  if (security._tag !== "Http") return decode
  const last = new WeakMap<object, { readonly authorization: string | undefined; readonly credential: unknown }>()
  return Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ source }) => {
    if (!(source instanceof IncomingMessage)) return decode
    const { headers: { authorization }, socket } = source
    const cached = last.get(socket)
    if (cached !== undefined && cached.authorization === authorization) return Effect.succeed(cached.credential)
    return Effect.map(decode, (credential) => {
      last.set(socket, { authorization, credential })
      return credential
    })
  })
}

const isMiddleware = (service: unknown): service is Middleware => typeof service === "function"

/**
 * Options that stop at the first error. A request that fails here is decoded again by HttpApi, which finds all errors.
 * Decoding with `errors: "all"` takes three times as long, even for a valid request.
 */
const untilFirstError = (options: SchemaAST.ParseOptions | undefined): SchemaAST.ParseOptions => ({
  ...options,
  errors: "first"
})

/** Returns the decoder of a JSON body, or `undefined` for other bodies, which HttpApi decodes. */
const payloadDecoder = ({ payload }: HttpApiEndpoint.Top, options: SchemaAST.ParseOptions | undefined) => {
  const [only, ...others] = payload
  if (only === undefined || others.length > 0) return undefined
  const [contentType, { encoding, schemas }] = only
  if (contentType !== "application/json" || (encoding._tag !== "Json" && encoding._tag !== "Text")) return undefined
  const decode = decoderOf(Schema.Union(schemas), untilFirstError(options))
  const decodeWithAllErrors = decoderOf(Schema.Union(schemas), options)
  const decodeValue = (value: unknown) => {
    const decoded = decode(value)
    // A body that fails is decoded again with the contract's own options, so that its 400 equals HttpApi's.
    return Exit.isFailure(decoded) ? decodeWithAllErrors(value) : decoded
  }
  return encoding._tag === "Text" ? decodeValue : (text: string) => {
    try {
      return decodeValue(JSON.parse(text))
    } catch {
      // HttpApi has the same message.
      return Exit.fail(
        new Schema.SchemaError(new SchemaIssue.InvalidValue({ message: "Expected a valid JSON body" }))
      )
    }
  }
}

/** Compiles an endpoint. Returns `undefined` if HttpApi must serve it. */
export const compileEndpoint = (
  { context, endpoint, errors, group, handler, mergedAnnotations, middleware, successes }: Source
): CompiledEndpoint | undefined => {
  const pattern = compilePath(endpoint.path)
  if (pattern === undefined || handler.isRaw || handler.uninterruptible) return undefined
  const fallback = Context.getOrUndefined(mergedAnnotations, HttpApi.ParseOptions)
  const optionsOf = <Id>(key: Context.Key<Id, SchemaAST.ParseOptions>): SchemaAST.ParseOptions | undefined =>
    Context.getOrUndefined(mergedAnnotations, key) ?? fallback

  const hasBody = HttpMethod.hasBody(endpoint.method) && endpoint.payload.size > 0
  const decodePayload = payloadDecoder(endpoint, optionsOf(HttpApi.PayloadParseOptions))
  if (endpoint.payload.size > 0 && (!hasBody || decodePayload === undefined)) return undefined
  if (endpoint.method === "HEAD" || endpoint.method === "OPTIONS") return undefined

  const headers = untilFirstError(optionsOf(HttpApi.HeadersParseOptions))
  const statusOf = (byStatus: Source["successes"]) =>
    new Map([...byStatus].flatMap(([status, schemas]) => schemas.map((schema) => [schema, status] as const)))
  const successStatus = statusOf(successes)
  // The successes in declared order. Without a declaration the only success is the one that HttpApi adds.
  const declared = endpoint.success.size > 0 ? [...endpoint.success] : [...successStatus.keys()]
  const encodeSuccess = compileResponse(
    declared.map((schema) => [schema, successStatus.get(schema)] as const),
    { body: untilFirstError(optionsOf(HttpApi.SuccessParseOptions)), headers }
  )
  const encodeError = compileResponse([...statusOf(errors)], {
    body: untilFirstError(optionsOf(HttpApi.ErrorParseOptions)),
    headers
  })
  if (encodeSuccess === undefined || encodeError === undefined) return undefined

  const encode = encodeFrozenOnce(encodeSuccess)
  const respond = (value: unknown): Served => {
    const response = HttpServerResponse.isHttpServerResponse(value) ? value : encode(value)
    return response === undefined
      ? Effect.die(new Error(`A response of ${endpoint.identifier} does not fit its schema.`))
      : Effect.succeed(response)
  }
  const handle = (input: Input, payload?: unknown): Served =>
    Effect.flatMap(handler.handler(hasBody ? { ...input, payload } : input), respond)
  let serve: Served = Effect.flatMap(CurrentInput, (input) =>
    decodePayload === undefined || !hasBody
      ? handle(input)
      : Effect.flatMap(Effect.orDie(input.request.text), (text) =>
        Effect.flatMap(
          HttpApiError.HttpApiSchemaError.wrap("Payload", decodePayload(text)),
          (payload) => handle(input, payload)
        )))
  const options = { endpoint, group }
  for (const key of middleware) {
    const apply = middlewareOf(key, context)
    if (apply === undefined) return undefined
    serve = apply(serve, options)
  }
  const complete = serve.pipe(Effect.catch((error) => {
    const response = HttpApiError.HttpApiSchemaError.is(error) ? undefined : encodeError(error)
    return response === undefined ? Effect.die(error) : Effect.succeed(response)
  }))

  const decodeParams = endpoint.params &&
    decoderOf(endpoint.params, untilFirstError(optionsOf(HttpApi.ParamsParseOptions)))
  const decodeHeaders = endpoint.headers && decoderOf(endpoint.headers, headers)
  const decodeQuery = endpoint.query &&
    decoderOf(Schema.toCodecArrayFromSingle(endpoint.query), untilFirstError(optionsOf(HttpApi.QueryParseOptions)))
  const emptyQuery = decodeQuery?.(noQuery)
  return {
    endpoint,
    pattern,
    hasBody,
    call: (source, query, params) => {
      const request = new FastRequest(source)
      const input: Input = { request, endpoint, group }
      if (decodeParams !== undefined) {
        const decoded = decodeParams(params)
        if (Exit.isFailure(decoded)) return undefined
        input.params = decoded.value
      }
      if (decodeHeaders !== undefined) {
        const decoded = decodeHeaders(request.headers)
        if (Exit.isFailure(decoded)) return undefined
        input.headers = decoded.value
      }
      if (decodeQuery !== undefined) {
        const decoded = query === noQuery && emptyQuery !== undefined ? emptyQuery : decodeQuery(query)
        if (Exit.isFailure(decoded)) return undefined
        input.query = decoded.value
      }
      return {
        endpoint,
        serve: complete,
        addTo: (services) =>
          Context.add(Context.add(services, HttpServerRequest.HttpServerRequest, request), CurrentInput, input)
      }
    }
  }
}

/**
 * Encodes a frozen value once. A handler that returns the same frozen object again guarantees that nothing in it
 * changes.
 */
const encodeFrozenOnce = (encode: Encode): Encode => {
  const responses = new WeakMap<object, HttpServerResponse.HttpServerResponse>()
  return (value) => {
    if (typeof value !== "object" || value === null || !Object.isFrozen(value)) return encode(value)
    const cached = responses.get(value)
    if (cached !== undefined) return cached
    const response = encode(value)
    if (response !== undefined) responses.set(value, response)
    return response
  }
}
