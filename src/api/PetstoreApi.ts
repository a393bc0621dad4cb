/** Declares the API of the Petstore service. The server implements it, and clients and documents derive from it. */
import { HttpApi } from "effect/http-api"
import { Auth } from "./Auth.ts"
import { PetsGroup } from "./Pets.ts"
import { RateLimit } from "./RateLimit.ts"
import { Validation } from "./Validation.ts"

/** The API under `/v1`. Middleware runs from the last to the first: authentication, rate limit, validation. */
export class PetstoreApi extends HttpApi.make("petstore")
  .add(PetsGroup.middleware(Validation).middleware(RateLimit).middleware(Auth))
  .prefix("/v1")
  .annotate(HttpApi.ParseOptions, { errors: "all" })
{}
