/** The 400 for a request that does not decode: the message names each field and what it must be (SPEC §7). */
import { Effect, Layer } from "effect"
import { HttpMethod, HttpServerRequest, type HttpServerResponse } from "effect/http"
import { HttpApiError } from "effect/http-api"
import { ExpectationFailed, InvalidRequest, type PayloadTooLarge, type UnsupportedMediaType } from "../../api/Errors.ts"
import * as Issue from "../../api/Issue.ts"
import { Validation } from "../../api/Validation.ts"
import { isServerSource } from "../response/ServerSource.ts"
import * as JsonBody from "./JsonBody.ts"

const describe = ({ cause, kind }: HttpApiError.HttpApiSchemaError): string => {
  const place = kind === "Payload" ? "body" : kind === "Params" ? "path" : kind === "Headers" ? "header" : "query"
  return Issue.describe(cause.issue, (path) => [place, ...path].join("."))
}

const toInvalidRequest = (error: HttpApiError.HttpApiSchemaError): Effect.Effect<never, InvalidRequest> =>
  error.kind === "Body" || error.kind === "ResponseHeaders"
    // A response of the service that does not encode is a fault of the service.
    ? Effect.die(error)
    : Effect.fail(new InvalidRequest({ message: `Invalid request: ${describe(error)}.` }))

/**
 * Validates each request. It fails with 400 for a request that does not decode, and with 413 or 415 for a body that
 * the service does not accept. It fails with 417 for an unknown `Expect`. It uses no generators, because every request
 * passes here.
 */
export const layer = Layer.succeed(Validation, (httpEffect) => {
  const checked = Effect.flatMap(
    HttpServerRequest.HttpServerRequest,
    (request): Effect.Effect<
      HttpServerResponse.HttpServerResponse,
      InvalidRequest | PayloadTooLarge | UnsupportedMediaType | ExpectationFailed | Effect.Error<typeof httpEffect>
    > => {
      const { source } = request
      const { expect } = isServerSource(source) ? source.headers : request.headers
      if (expect !== undefined && expect.toLowerCase() !== "100-continue") return Effect.fail(new ExpectationFailed())
      return HttpMethod.hasBody(request.method)
        ? Effect.andThen(JsonBody.rejectOtherThanJson(request), httpEffect)
        : httpEffect
    }
  )
  // The error type of the wrapped effect is opaque here, so that no refinement of it type-checks.
  return checked.pipe(
    // @effect-diagnostics-next-line catchConditionalRefailToCatchIf:off
    Effect.catch((error) => HttpApiError.HttpApiSchemaError.is(error) ? toInvalidRequest(error) : Effect.fail(error))
  )
})
