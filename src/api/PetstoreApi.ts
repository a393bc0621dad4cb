/** The API of the Petstore service: everything that its server implements and its clients are derived from. */
import { HttpApi } from "effect/http-api"
import { Auth } from "./Auth.ts"
import { NewPet, Pet, Pets, PetsGroup, PetStatus } from "./Pets.ts"
import { RateLimit } from "./RateLimit.ts"
import { Validation } from "./Validation.ts"

/** Middleware runs in the order from the last to the first: the key, the limit, the request. */
export class PetstoreApi extends HttpApi.make("petstore")
  .add(PetsGroup.middleware(Validation).middleware(RateLimit).middleware(Auth))
  .prefix("/v1")
  .annotate(HttpApi.ParseOptions, { errors: "all" })
  .annotate(HttpApi.AdditionalSchemas, [NewPet, Pet, Pets, PetStatus])
{}
