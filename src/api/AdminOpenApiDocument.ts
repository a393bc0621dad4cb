/** Makes the OpenAPI 3.1 document of {@link AdminApi}, which the management port returns at `/admin/openapi.json`. */
import { OpenApi } from "effect/http-api"
import { AdminApi } from "./AdminApi.ts"
import * as Errors from "./Errors.ts"
import { complete, contactAndLicense, derivation } from "./OpenApiCompletion.ts"
import { adminHeadersOf } from "./ResponseHeaders.ts"

/** One example of each error that an operation under `/admin` can return. */
const errors: ReadonlyArray<Errors.ErrorBody> = [
  new Errors.InvalidRequest({ message: "Invalid request: body.limits: required on plan enterprise." }),
  new Errors.MissingAdminToken(),
  new Errors.InvalidAdminToken(),
  new Errors.ReadOnlyToken(),
  new Errors.NotFound({ message: "There is no key key_4fTq9XbLw2ZkPn7R." }),
  new Errors.RequestTimeout(),
  new Errors.Conflict({ message: "Key key_4fTq9XbLw2ZkPn7R is revoked." }),
  new Errors.PreconditionFailed({
    message:
      "Key key_4fTq9XbLw2ZkPn7R has version 4, which If-Match does not name. Read the key again before the change."
  }),
  new Errors.PayloadTooLarge(),
  new Errors.UnsupportedMediaType(),
  new Errors.ExpectationFailed(),
  new Errors.MisdirectedRequest(),
  new Errors.TooManyAttempts({
    message: "Too many requests without the admin token came from this address. Retry in 42 seconds."
  }),
  new Errors.HeaderFieldsTooLarge(),
  new Errors.InternalError(),
  new Errors.ServiceUnavailable()
].map(({ code, message, status }) => ({ code, message, status }))

const key = {
  id: "key_4fTq9XbLw2ZkPn7R",
  version: 1,
  name: "acme",
  hint: "77xM",
  plan: "pro",
  limits: { perMinute: 300, perDay: 10_000 },
  createdAt: "2026-11-23T08:12:44.018Z",
  expiresAt: null,
  revokedAt: null,
  lastUsedAt: "2026-11-23T10:59:00.000Z"
}

const secret = "psk_0123456789abcdefghijklmnopqrstuvwx77xM"

const introduction = `The API of operators, on the management port. Clients of \`/v1\` have no access to it.

Each request carries an admin token as a bearer token: \`ADMIN_TOKEN\` (or the file \`admin-token\` of \`DATA_DIR\`), or
one of \`ADMIN_TOKENS\`.

Every error has the body \`{"code","message","status"}\`. An unknown field or query parameter is an error.`

/** The OpenAPI 3.1 document of the API under `/admin`. */
export const adminOpenApiDocument: OpenApi.OpenAPISpec = complete(OpenApi.fromApi(AdminApi, derivation), {
  basePath: "",
  info: {
    title: "Petstore management",
    version: "1.0.0",
    description: introduction,
    ...contactAndLicense
  },
  servers: [{
    url: "{management_url}",
    description: "The management port",
    variables: {
      management_url: {
        default: "http://127.0.0.1:9090",
        description: "Address of the port. The default is that of a service on your own machine."
      }
    }
  }],
  securityScheme: { name: "adminToken", description: "The admin token." },
  headersOf: ({ operationId }, status) => adminHeadersOf(operationId, status),
  errors,
  parameters: {
    id: { example: key.id },
    key: { example: key.id },
    search: { example: "acme" },
    secretHash: { example: "0f2e4c1d5b6a79880f2e4c1d5b6a79880f2e4c1d5b6a79880f2e4c1d5b6a7988" },
    "If-Match": { example: "*" },
    "Idempotency-Key": { example: "issue-acme-1" }
  },
  requests: {
    issueKey: { name: "acme", plan: "pro" },
    updateKey: { plan: "business" },
    rotateKey: { gracePeriodSeconds: 3600 }
  },
  responses: {
    issueKey: { description: "The key, with its secret.", example: { ...key, key: secret } },
    listKeys: { description: "The keys of the page.", example: [{ ...key, ban: null }] },
    showKey: {
      description: "The key, with its usage, its ban and its former secrets.",
      example: {
        ...key,
        usage: {
          minute: { limit: 300, remaining: 240, resetAt: "2026-11-23T11:00:07.201Z" },
          day: { limit: 10_000, remaining: 9_460, resetAt: "2026-11-24T08:12:44.018Z" }
        },
        ban: null,
        counting: "shared",
        formerSecrets: [{ endsAt: "2026-11-23T12:00:00.000Z" }]
      }
    },
    showUsage: {
      description: "The requests of the key, by minute and by hour.",
      example: {
        minutes: [{ from: "2026-11-23T10:59:00.000Z", allowed: 60, rejected: 0, banned: 0 }],
        hours: [{ from: "2026-11-23T10:00:00.000Z", allowed: 540, rejected: 0, banned: 0 }]
      }
    },
    updateKey: {
      description: "The changed key.",
      example: { ...key, version: 2, plan: "business", limits: { perMinute: 1_000, perDay: 100_000 } }
    },
    revokeKey: { description: "The key is revoked." },
    rotateKey: { description: "The key, with its new secret.", example: { ...key, version: 2, key: secret } },
    endFormerSecrets: { description: "Only the current secret works." },
    unbanKey: { description: "The key is not banned." },
    listAudit: {
      description: "The entries of the page, newest first.",
      example: [{
        id: 12,
        at: "2026-11-23T10:59:12.000Z",
        action: "update",
        keyId: key.id,
        operator: "alice",
        address: "192.0.2.7",
        before: { plan: "pro" },
        after: { plan: "business" }
      }]
    }
  }
})
