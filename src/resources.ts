/** The resources of the service: the ports, `main.ts`, `testing.ts`, the test service and the tests read them here. */
import { Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { PetstoreApi } from "./api/PetstoreApi.ts"
import type { MakeStore } from "./collection/Collection.ts"
import * as PetHandlers from "./http/PetHandlers.ts"
import { PetRepository, pets } from "./pets/PetRepository.ts"

export const api = PetstoreApi

/** The routes of `api`. A group without handlers stays among the requirements, so the service does not compile. */
export const routes = Layer.provide(HttpApiBuilder.layer(api), [PetHandlers.layer])

/** Makes the store of each resource: in memory, on SQL, or with faults. The service needs each store of `routes`. */
export const makeStores = <E, R>(make: MakeStore<E, R>) => Layer.mergeAll(make(PetRepository, pets))
