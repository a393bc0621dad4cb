import { layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Management, serversOn } from "../management/Management.ts"
import { memory } from "../support/Databases.ts"
import { adminToken } from "../support/Process.ts"
import { Service as ApiPort } from "../support/Service.ts"
import { temporaryDirectory } from "../support/Temporary.ts"
import { defineCommandTests, Service } from "./CommandSuite.ts"

const startService = Effect.gen(function*() {
  const [{ baseUrl }, { port }] = [yield* Management, yield* ApiPort]
  const DATA_DIR = yield* temporaryDirectory
  writeFileSync(join(DATA_DIR, "admin-token"), `${adminToken}\n`)
  return { address: `http://127.0.0.1:${port}`, env: { DATA_DIR, PETSTORE_ADMIN_URL: baseUrl } }
})

const beside = Layer.provide(Service.layer(startService), serversOn(memory))

layer(beside, { excludeTestServices: true })("The petstore command beside a service in memory", defineCommandTests)
