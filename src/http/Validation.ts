/** What a caller is told of a request that does not decode: each field, and what it must be (SPEC §7: 400). */
import { Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { HttpApiError } from "effect/http-api"
import { ExpectationFailed, InvalidRequest } from "../api/Errors.ts"
import * as Issue from "../api/Issue.ts"
import { Validation } from "../api/Validation.ts"
import * as Body from "./Body.ts"

const describe = ({ cause, kind }: HttpApiError.HttpApiSchemaError): string => {
  const place = kind === "Payload" ? "body" : kind === "Params" ? "path" : kind === "Headers" ? "header" : "query"
  return Issue.describe(cause.issue, (path) => [place, ...path].join("."))
}

const refuseExpectations = Effect.flatMap(
  HttpServerRequest.HttpServerRequest,
  ({ headers: { expect = "100-continue" } }) =>
    expect.toLowerCase() === "100-continue"
      ? Effect.void
      : Effect.fail(new ExpectationFailed())
)

const toInvalidRequest = (error: HttpApiError.HttpApiSchemaError): Effect.Effect<never, InvalidRequest> =>
  error.kind === "Body" || error.kind === "ResponseHeaders"
    // An answer of ours that does not encode is a fault of the service.
    ? Effect.die(error)
    : Effect.fail(new InvalidRequest({ message: `Invalid request: ${describe(error)}.` }))

export const layer = Layer.succeed(Validation, (httpEffect) =>
  refuseExpectations.pipe(
    Effect.andThen(Body.refuseOtherThanJson),
    Effect.andThen(httpEffect),
    // The error of what is wrapped is opaque here, so that no refinement of it type-checks.
    // @effect-diagnostics-next-line catchConditionalRefailToCatchIf:off
    Effect.catch((error) => HttpApiError.HttpApiSchemaError.is(error) ? toInvalidRequest(error) : Effect.fail(error))
  ))
