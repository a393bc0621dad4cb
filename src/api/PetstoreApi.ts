import { type Array, Context } from "effect"
import { HttpApi, type HttpApiGroup, OpenApi } from "effect/http-api"
import { basePaths, keyPrefix, name, title } from "./Brand.ts"
import { inOrderForAll } from "./InOrder.ts"
import { makeServer, makeTransform } from "./OpenApiTransform.ts"
import { Auth, Deprecation, IgnoresUnknownNames, RateLimit } from "./OperationMiddleware.ts"
import { PetsGroup } from "./Pets.ts"
import { planLimits } from "./Plans.ts"
import { headersOf } from "./ResponseHeaders.ts"

const basePath = basePaths.api

const localUrl = `http://localhost:8080${basePath}`

const planRows = Object.entries(planLimits).map(([plan, { perDay, perMinute }]) =>
  `| ${plan} | ${perMinute.toLocaleString("en")} | ${perDay.toLocaleString("en")} |`
)

const introduction = `The pets of a store, as JSON over HTTP.

Each request carries an API key as a bearer token. The operator of the service issues keys.

Each plan has a limit per minute and a limit per day. Every response has the \`X-RateLimit-…\` headers of the window
that is closest to its limit. After a 429, wait for the seconds in \`Retry-After\`: a key that keeps sending is banned
for a minute, and each further ban within an hour lasts twice as long, up to an hour.

| plan | per minute | per day |
|---|---|---|
${planRows.join("\n")}
| enterprise | set for each key | set for each key |

Every error has a JSON body with \`code\`, \`message\` and \`status\`. Branch on \`code\`, because \`message\` can
change. Retry 408, 500, 502, 503 and 504 with exponential backoff. Except after 408 or 429, retry a request that is not
a GET only with an \`Idempotency-Key\`.

Lists are paginated: the \`Link\` header with \`rel="next"\` has the URL of the next page.
The last page has none.

\`id\` and \`categoryId\` are JSON numbers up to 9223372036854775807, which many parsers round beyond 2^53.`

/**
 * Makes the API under `/v1` from groups, each with the endpoints of one resource. Adds `Auth` and `RateLimit` to every
 * endpoint: they run before the endpoint's own middleware.
 */
export const makeApi = <const Groups extends Array.NonEmptyReadonlyArray<HttpApiGroup.Constraint>>(
  ...groups: Groups
) => {
  const resources = HttpApi.make(name).annotate(IgnoresUnknownNames, true).add(...groups)
  const deprecations = new Map<string, Deprecation["Service"]>()
  HttpApi.reflect(resources, {
    onGroup() {},
    onEndpoint({ endpoint: { identifier, annotations } }) {
      const deprecation = Context.getOrUndefined(annotations, Deprecation)
      if (deprecation !== undefined) deprecations.set(identifier, deprecation)
    }
  })
  return HttpApi.make(name).addHttpApi(resources).pipe(inOrderForAll(Auth, RateLimit))
    .prefix(basePath)
    .annotate(HttpApi.ParseOptions, { errors: "all" })
    .annotateMerge(OpenApi.annotations({
      title,
      description: introduction,
      servers: [
        { url: basePath, description: "The deployment that returned this document" },
        makeServer("base_url", localUrl, "Production"),
        makeServer("staging_base_url", localUrl, "Staging")
      ],
      transform: makeTransform({
        basePath,
        securitySchemes: {
          bearerAuth: { type: "http", scheme: "bearer", description: `An API key: \`${keyPrefix}\` and 38 characters.` }
        },
        headersOf: (status, { operationId }) => headersOf(status, deprecations.get(operationId))
      })
    }))
}

/** The API under `/v1`. */
export class PetstoreApi extends makeApi(PetsGroup) {}
