/** Data directories of the embedded database for tests. They are copies, because making the files takes seconds. */
import { Effect, Layer } from "effect"
import { randomUUID } from "node:crypto"
import { cpSync, existsSync, mkdirSync, renameSync } from "node:fs"
import { join } from "node:path"
import * as Database from "../../src/database/Database.ts"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"

/** The directory for the template of all workers. The setup of the run creates and removes it. */
const templatesDirectory = process.env.TEST_TEMPLATE_DIRECTORY

/** Puts a database with the schema into a directory. Outside of a test run it does nothing. */
export const copyTo = Effect.fnUntraced(function*(directory: string) {
  if (templatesDirectory === undefined) return
  const template = join(templatesDirectory, "template")
  if (!existsSync(template)) {
    const own = `${template}-${randomUUID()}`
    mkdirSync(own)
    yield* Effect.scoped(Layer.build(Layer.fresh(Layer.provide(Database.migrate, EmbeddedDatabase.layer(own)))))
    // Another worker may have made the template meanwhile.
    if (!existsSync(template)) renameSync(own, template)
  }
  cpSync(join(template, "pgdata"), join(directory, "pgdata"), { recursive: true })
})
