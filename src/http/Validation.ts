/** What a caller is told of a request that does not decode: each field, and what it must be (SPEC §7: 400). */
import { Effect, Layer, SchemaIssue } from "effect"
import { type HttpApiError, HttpApiMiddleware } from "effect/http-api"
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

export const layer: Layer.Layer<Validation> = HttpApiMiddleware.layerSchemaErrorTransform(
  Validation,
  (error) =>
    error.kind === "Body" || error.kind === "ResponseHeaders"
      // An answer of ours that does not encode is a fault of the service.
      ? Effect.die(error)
      : Effect.fail(new InvalidRequest({ message: `Invalid request: ${describe(error)}.` }))
)
