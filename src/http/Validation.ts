/** What a caller is told of a request that does not decode: each field, and what it must be (SPEC §7: 400). */
import { Effect, Layer, SchemaIssue } from "effect"
import { type Headers, HttpMethod, HttpServerRequest } from "effect/http"
import { HttpApiError } from "effect/http-api"
import { isUtf8 } from "node:buffer"
import { InvalidRequest, UnsupportedMediaType } from "../api/Errors.ts"
import { Validation } from "../api/Validation.ts"

const format = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => issue._tag === "MissingKey" ? "required" : SchemaIssue.defaultLeafHook(issue)
})

const describe = ({ cause, kind }: HttpApiError.HttpApiSchemaError): string => {
  const place = kind === "Payload" ? "body" : kind === "Params" ? "path" : kind === "Headers" ? "header" : "query"
  return format(cause.issue).issues
    .map(({ message, path = [] }) => {
      const field = [place, ...path.map((segment) => String(typeof segment === "object" ? segment.key : segment))]
      return `${field.join(".")}: ${message.charAt(0).toLowerCase()}${message.slice(1)}`
    })
    .join("; ")
}

const json = /^application\/json(?:\s*;\s*charset="?utf-8"?)?\s*$/i
const empty = Buffer.alloc(0)
const byteOrderMark = Buffer.from("\ufeff")

/**
 * Refuses a body that is not plain JSON text: bytes that are no UTF-8 would be kept as something else than was sent, and a
 * byte order mark is none of JSON's (RFC 8259 §8.1).
 */
const refuseOtherThanJson = Effect.gen(function*() {
  const request = yield* HttpServerRequest.HttpServerRequest
  const body = HttpMethod.hasBody(request.method) ? Buffer.from(yield* Effect.orDie(request.arrayBuffer)) : empty
  return yield* refusal(body, request.headers) ?? Effect.void
})

const refusal = (body: Buffer, headers: Headers.Headers): InvalidRequest | UnsupportedMediaType | undefined => {
  if (body.length === 0) return undefined
  const { "content-encoding": encoding = "identity", "content-type": type = "" } = headers
  if (!json.test(type) || encoding !== "identity") {
    return new UnsupportedMediaType({ message: "Send the body as application/json, in UTF-8, not compressed." })
  }
  if (!isUtf8(body)) return new InvalidRequest({ message: "Invalid request: body: expected valid UTF-8." })
  return body.subarray(0, byteOrderMark.length).equals(byteOrderMark)
    ? new InvalidRequest({ message: "Invalid request: body: expected no byte order mark." })
    : undefined
}

const toInvalidRequest = (error: HttpApiError.HttpApiSchemaError): Effect.Effect<never, InvalidRequest> =>
  error.kind === "Body" || error.kind === "ResponseHeaders"
    // An answer of ours that does not encode is a fault of the service.
    ? Effect.die(error)
    : Effect.fail(new InvalidRequest({ message: `Invalid request: ${describe(error)}.` }))

export const layer = Layer.succeed(Validation, (httpEffect) =>
  refuseOtherThanJson.pipe(
    Effect.andThen(httpEffect),
    // The error of what is wrapped is opaque here, so that no refinement of it type-checks.
    // @effect-diagnostics-next-line catchConditionalRefailToCatchIf:off
    Effect.catch((error) => HttpApiError.HttpApiSchemaError.is(error) ? toInvalidRequest(error) : Effect.fail(error))
  ))
