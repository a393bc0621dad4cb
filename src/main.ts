#!/usr/bin/env node
import * as SqlCollection from "./collection/SqlCollection.ts"
import { Settings } from "./config/Settings.ts"
import * as ApiServer from "./http/ApiServer.ts"
import * as HeldServices from "./node-server/HeldServices.ts"
import { api, makeStores, routes } from "./resources.ts"
import { runService } from "./runService.ts"

const stores = makeStores(SqlCollection.layer(Settings.petCacheSeconds.config))

runService(HeldServices.provide(stores)(ApiServer.layer(api, routes)))
