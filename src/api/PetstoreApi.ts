/** The API of the Petstore service: everything that its server implements and its clients are derived from. */
import { HttpApi, HttpApiMiddleware } from "effect/http-api"
import { Auth } from "./Auth.ts"
import * as Errors from "./Errors.ts"
import { NewPet, Pet, Pets, PetsGroup, PetStatus } from "./Pets.ts"
import { RateLimit } from "./RateLimit.ts"

/** Answers 400 to what does not decode. */
export class Validation extends HttpApiMiddleware.Service<Validation>()("petstore/api/Validation", {
  error: Errors.response(Errors.InvalidRequest)
}) {}

/** Middleware runs in the order from the last to the first: the key, the limit, the request. */
export class PetstoreApi extends HttpApi.make("petstore")
  .add(PetsGroup.middleware(Validation).middleware(RateLimit).middleware(Auth))
  .prefix("/v1")
  .annotate(HttpApi.ParseOptions, { errors: "all" })
  .annotate(HttpApi.AdditionalSchemas, [NewPet, Pet, Pets, PetStatus])
{}
