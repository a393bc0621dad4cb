/** What a caller is told of a request that does not decode: each field, and what it must be (SPEC §7: 400). */
import { Effect, Layer, SchemaIssue } from "effect"
import { HttpMethod, HttpServerRequest } from "effect/http"
import { HttpApiError } from "effect/http-api"
import { isUtf8 } from "node:buffer"
import { InvalidRequest } from "../api/Errors.ts"
import { Validation } from "../api/Validation.ts"

const format = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => issue._tag === "MissingKey" ? "required" : SchemaIssue.defaultLeafHook(issue)
})

const describe = ({ cause, kind }: HttpApiError.HttpApiSchemaError): string => {
  const place = kind === "Payload" ? "body" : kind === "Params" ? "path" : "query"
  return format(cause.issue).issues
    .map(({ message, path = [] }) => {
      const field = [place, ...path.map((segment) => String(typeof segment === "object" ? segment.key : segment))]
      return `${field.join(".")}: ${message.charAt(0).toLowerCase()}${message.slice(1)}`
    })
    .join("; ")
}

/** Bytes that are no UTF-8 would be kept as something else than was sent (RFC 8259 §8.1). */
const refuseOtherThanUtf8 = Effect.gen(function*() {
  const request = yield* HttpServerRequest.HttpServerRequest
  const isReadable = !HttpMethod.hasBody(request.method) || isUtf8(yield* Effect.orDie(request.arrayBuffer))
  return yield* isReadable
    ? Effect.void
    : new InvalidRequest({ message: "Invalid request: body: expected valid UTF-8." })
})

const toInvalidRequest = (error: HttpApiError.HttpApiSchemaError): Effect.Effect<never, InvalidRequest> =>
  error.kind === "Body" || error.kind === "ResponseHeaders"
    // An answer of ours that does not encode is a fault of the service.
    ? Effect.die(error)
    : Effect.fail(new InvalidRequest({ message: `Invalid request: ${describe(error)}.` }))

export const layer = Layer.succeed(Validation, (httpEffect) =>
  refuseOtherThanUtf8.pipe(
    Effect.andThen(httpEffect),
    // The error of what is wrapped is opaque here, so that no refinement of it type-checks.
    // @effect-diagnostics-next-line catchConditionalRefailToCatchIf:off
    Effect.catch((error) => HttpApiError.HttpApiSchemaError.is(error) ? toInvalidRequest(error) : Effect.fail(error))
  ))
