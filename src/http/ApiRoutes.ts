import { Layer } from "effect"
import { HttpServer } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import * as Auth from "./Auth.ts"
import * as ConcurrencyLimit from "./ConcurrencyLimit.ts"
import * as PetHandlers from "./PetHandlers.ts"
import * as RateLimit from "./RateLimit.ts"
import * as RequestBody from "./RequestBody.ts"
import * as Sunset from "./Sunset.ts"
import * as Validation from "./Validation.ts"

/** The routes of the contract. */
export const layer = HttpApiBuilder.layer(PetstoreApi).pipe(
  Layer.provide(PetHandlers.layer),
  Layer.provide([
    Auth.layer,
    RateLimit.layer,
    RequestBody.layer,
    ConcurrencyLimit.layer,
    Validation.layer,
    Sunset.layer
  ]),
  Layer.provide(HttpServer.layerServices)
)
