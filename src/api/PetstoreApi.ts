/** Declares the API of the Petstore service. The server implements it, and clients and documents derive from it. */
import { HttpApi } from "effect/http-api"
import { Auth, RateLimit, Validation } from "./OperationMiddleware.ts"
import { PetsGroup } from "./Pets.ts"

/** The API under `/v1`. Middleware runs from the last to the first: authentication, rate limit, validation. */
export class PetstoreApi extends HttpApi.make("petstore")
  .add(PetsGroup.middleware(Validation).middleware(RateLimit).middleware(Auth))
  .prefix("/v1")
  .annotate(HttpApi.ParseOptions, { errors: "all" })
{}
