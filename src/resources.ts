/** Lists the resources of the service, such as pets, in one place: for `main.ts`, `testing.ts` and the tests. */
import { Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { PetstoreApi } from "./api/PetstoreApi.ts"
import type { MakeStore } from "./collection/Collection.ts"
import * as PetHandlers from "./http/PetHandlers.ts"
import { PetRepository, pets } from "./pets/PetRepository.ts"

export const api = PetstoreApi

/** The routes of `api`. Without the handlers of a group, the layer requires them, and the service does not compile. */
export const routes = Layer.provide(HttpApiBuilder.layer(api), [PetHandlers.layer])

/**
 * Makes the store of each resource with `make`, which decides where items live: in memory, on SQL (`main.ts`), or in a
 * store with injected faults (`TestService.ts`). `routes` require these stores.
 */
export const makeStores = <E, R>(make: MakeStore<E, R>) => Layer.mergeAll(make(PetRepository, pets))
