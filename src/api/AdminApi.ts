import { Schema } from "effect"
import { HttpApi, HttpApiEndpoint, HttpApiGroup, HttpApiMiddleware, HttpApiSecurity, OpenApi } from "effect/http-api"
import { AuditGroup } from "./AuditEndpoints.ts"
import * as Brand from "./Brand.ts"
import * as Errors from "./Errors.ts"
import { commonErrors, errorResponse } from "./ErrorSchemas.ts"
import { inOrderForAll } from "./InOrder.ts"
import { KeysGroup } from "./KeyEndpoints.ts"
import { makeServer, makeTransform } from "./OpenApiTransform.ts"
import { adminHeadersOf } from "./ResponseHeaders.ts"

/**
 * Requires an admin token as a bearer token: `ADMIN_TOKEN` (if unset, the token in the file `admin-token` of
 * `DATA_DIR`), or one of `ADMIN_TOKENS`.
 */
export class AdminAuth extends HttpApiMiddleware.Service<AdminAuth>()("petstore/api/AdminAuth", {
  requiredForClient: true,
  security: {
    /** The admin token, as a bearer token. */
    adminToken: HttpApiSecurity.bearer
  },
  error: [
    errorResponse(Errors.InvalidAdminToken, Errors.MissingAdminToken),
    errorResponse(Errors.ReadOnlyToken),
    errorResponse(Errors.MisdirectedRequest),
    errorResponse(Errors.TooManyAttempts),
    ...commonErrors
  ]
}) {}

/**
 * The response of `showSession`: the name of the admin token, whether it may change keys, and the environment of the
 * service.
 */
export const Session = Schema.Struct({
  /** The name of the admin token. */
  operator: Schema.String.annotate({ description: "The name of the admin token.", examples: ["admin"] }),
  /** Whether the admin token may change keys, or only read. */
  mayChange: Schema.Boolean.annotate({ description: "Whether the token may change keys, or only read." }),
  /** The name of the installation (`ENVIRONMENT`), or `null`. */
  environment: Schema.NullOr(Schema.String).annotate({
    description: "The name of this installation (`ENVIRONMENT`).",
    examples: ["production"]
  })
}).annotate({ identifier: "Session", description: "The operator, and the environment of the service." })

class SessionGroup extends HttpApiGroup.make("session", { topLevel: true }).add(
  HttpApiEndpoint.get("showSession", "/session", { success: Session }).annotateMerge(OpenApi.annotations({
    summary: "Show whose admin token this is",
    description: "Returns the name of the admin token, whether it may change keys, and the environment of the service."
  }))
).annotate(OpenApi.Description, "The admin token of the request.") {}

const introduction = `The API for operators, on the management port. Clients of \`/v1\` have no access to it.

Each request carries an admin token as a bearer token: \`ADMIN_TOKEN\` (or the file \`admin-token\` in \`DATA_DIR\`), or
one of \`ADMIN_TOKENS\`.

Errors have a JSON body with \`code\`, \`message\` and \`status\`. Unknown fields are rejected, as are unknown query
parameters of lists.`

/** The API for operators, under `/admin`. `AdminAuth` runs before the other middleware of each endpoint. */
export class AdminApi extends HttpApi.make(`${Brand.name}-admin`)
  .add(AuditGroup, KeysGroup, SessionGroup).pipe(inOrderForAll(AdminAuth))
  .prefix(Brand.basePaths.admin)
  .annotate(HttpApi.ParseOptions, { errors: "all" })
  // Reject unknown fields. If a misspelled `expiresAt` were ignored, the issued key would never expire.
  .annotate(HttpApi.PayloadParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotate(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotateMerge(OpenApi.annotations({
    title: `${Brand.title} management`,
    description: introduction,
    servers: [makeServer("management_url", "http://127.0.0.1:9090", "The management port")],
    transform: makeTransform({
      basePath: "",
      securitySchemes: { adminToken: { type: "http", scheme: "bearer", description: "An admin token." } },
      headersOf: adminHeadersOf
    })
  }))
{}
