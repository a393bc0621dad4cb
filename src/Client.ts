/** Typed clients, derived from the contract. They run wherever `fetch` does. */
import { Context, Layer, type Redacted } from "effect"
import { FetchHttpClient, HttpClientRequest } from "effect/http"
import { HttpApiClient, HttpApiMiddleware } from "effect/http-api"
import { AdminApi, AdminAuth } from "./api/AdminApi.ts"

/** The management API of a running service. */
// @effect-diagnostics-next-line leakingRequirements:off -- the derived client asks for nothing, behind a conditional type
export class AdminClient
  extends Context.Service<AdminClient, HttpApiClient.ForApi<typeof AdminApi>>()("petstore/AdminClient")
{
  /** `baseUrl` is the address of the management port, `token` the service's `ADMIN_TOKEN`. */
  static readonly layer = (options: { readonly baseUrl: string; readonly token: Redacted.Redacted }) =>
    Layer.effect(AdminClient, HttpApiClient.make(AdminApi, { baseUrl: options.baseUrl })).pipe(
      Layer.provide(HttpApiMiddleware.layerClient(
        AdminAuth,
        ({ next, request }) => next(HttpClientRequest.bearerToken(request, options.token))
      )),
      Layer.provide(FetchHttpClient.layer)
    )
}
