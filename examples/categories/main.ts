/**
 * Shows a service with a second resource, categories, on all that the pets have: keys, limits, errors, idempotency.
 *
 * Run it with `node examples/categories/main.ts`, and the settings of the Petstore. It creates its own table at the
 * start, also with `MIGRATE=off`, so its role must be able to create tables.
 */
import { Layer } from "effect"
import * as SqlCollection from "../../src/collection/SqlCollection.ts"
import { Settings } from "../../src/config/Settings.ts"
import * as ApiServer from "../../src/http/ApiServer.ts"
import * as HeldServices from "../../src/node-server/HeldServices.ts"
import { runService } from "../../src/runService.ts"
import { api, makeStores, migrate, routes } from "./resources.ts"

const stores = makeStores(SqlCollection.layer(Settings.petCacheSeconds.config))

runService(HeldServices.provide(Layer.provide(stores, Layer.orDie(migrate)))(ApiServer.layer(api, routes)))
