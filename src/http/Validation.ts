/** What a caller is told of a request that does not decode: each field, and what it must be (SPEC §7: 400). */
import { Effect, Layer, SchemaIssue } from "effect"
import { type Headers, HttpMethod, HttpServerRequest } from "effect/http"
import { HttpApiError } from "effect/http-api"
import { isUtf8 } from "node:buffer"
import { ExpectationFailed, InvalidRequest, PayloadTooLarge, UnsupportedMediaType } from "../api/Errors.ts"
import { Validation } from "../api/Validation.ts"
import * as Failure from "./Failure.ts"

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

const refuseExpectations = Effect.flatMap(
  HttpServerRequest.HttpServerRequest,
  ({ headers: { expect = "100-continue" } }) =>
    expect.toLowerCase() === "100-continue"
      ? Effect.void
      : Effect.fail(new ExpectationFailed({ message: "Expect nothing but 100-continue." }))
)

/**
 * Parameters may be empty (RFC 9110 §5.6.6). Each space can be matched in one way only, or a long header would take for
 * ever.
 */
const json = /^application\/json\s*(?:;\s*(?:charset="?utf-8"?\s*)?)*$/i
const byteOrderMark = Buffer.from("\ufeff")

/**
 * Refuses a body that is not plain JSON text: bytes that are no UTF-8 would be kept as something else than was sent,
 * and a byte order mark is none of JSON's (RFC 8259 §8.1).
 */
const refuseOtherThanJson = Effect.gen(function*() {
  const request = yield* HttpServerRequest.HttpServerRequest
  if (!HttpMethod.hasBody(request.method)) return
  // What says that it is too large is not waited for.
  const isTooLarge = Number(request.headers["content-length"]) > Failure.maxBodyBytes
  const body = isTooLarge
    ? Effect.fail(Failure.tooLarge)
    : Effect.map(Effect.orDie(request.arrayBuffer), (bytes) => Buffer.from(bytes))
  yield* refusal(yield* body, request.headers) ?? Effect.void
})

const refusal = (
  body: Buffer,
  headers: Headers.Headers
): InvalidRequest | PayloadTooLarge | UnsupportedMediaType | undefined => {
  if (body.length > Failure.maxBodyBytes) return Failure.tooLarge
  if (body.length === 0) return undefined
  const {
    "content-encoding": encoding = "identity",
    "content-type": type = "",
    "transfer-encoding": transfer = "chunked"
  } = headers
  // Names of codings have no case (RFC 9110 §8.4.1, RFC 9112 §7).
  if (!json.test(type) || encoding.toLowerCase() !== "identity" || transfer.toLowerCase() !== "chunked") {
    return Failure.notJson
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
  refuseExpectations.pipe(
    Effect.andThen(refuseOtherThanJson),
    Effect.andThen(httpEffect),
    // The error of what is wrapped is opaque here, so that no refinement of it type-checks.
    // @effect-diagnostics-next-line catchConditionalRefailToCatchIf:off
    Effect.catch((error) => HttpApiError.HttpApiSchemaError.is(error) ? toInvalidRequest(error) : Effect.fail(error))
  ))
