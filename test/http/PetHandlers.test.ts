/** Tests first pages of the list, and that no API key stays in memory in clear text. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { createReadStream, readdirSync } from "node:fs"
import { join } from "node:path"
import type { Pet } from "../../src/api/Pets.ts"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import { issueKey, memory, sendBytes, Service, service, temporaryDirectory } from "../support/Harness.ts"
import * as Load from "../support/Load.ts"
import { start } from "../support/Process.ts"

const pets: ReadonlyArray<Pet> = [1n, 2n, 3n].map((id) => ({ id, name: "Rex", categoryId: 1n }))

/** A repository that returns the same array for every limit. */
const repository = Layer.succeed(PetRepository, {
  list: () => Effect.succeed(pets),
  create: () => Effect.die("not used"),
  find: () => Effect.succeedNone
})

describe("A first page", () => {
  it.effect("has as many pets as its limit allows, even if the repository returns the same array for two limits", () =>
    Effect.gen(function*() {
      const { call, newKey } = yield* Service
      const key = yield* newKey
      for (const limit of [1, 2, 1, 3, 2]) {
        const { text } = yield* call(`/v1/pets?limit=${limit}`, { key })
        assert.deepStrictEqual(JSON.parse(text).map(({ id }: { readonly id: number }) => id), [1, 2, 3].slice(0, limit))
      }
      assert.lengthOf(JSON.parse((yield* call("/v1/pets", { key })).text), 3)
    }).pipe(Effect.provide(service(Layer.merge(memory, repository)))))
})

describe("The service", () => {
  it.live("keeps no API key in clear text in its memory for longer than a connection", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      const directory = yield* temporaryDirectory
      const database = Layer.fresh(EmbeddedDatabase.layer(DATA_DIR))
      const key = yield* issueKey(database)
      const { address, process } = yield* start({
        DATA_DIR,
        NODE_OPTIONS: `--heapsnapshot-signal=SIGUSR2 --diagnostic-dir=${directory}`
      })
      const head = `Host: localhost\r\nAuthorization: Bearer ${key}\r\n`
      const body = `Content-Type: application/json\r\nContent-Length: 30\r\n\r\n{"name":"Rex","categoryId":1} `
      const get = `GET /v1/pets HTTP/1.1\r\n${head}`
      const { port } = new URL(address)
      const { status } = yield* sendBytes(
        Number(port),
        `POST /v1/pets HTTP/1.1\r\n${head}${body}${get}\r\n${get}Connection: close\r\n\r\n`
      )
      assert.strictEqual(status, 201)
      yield* Effect.replicateEffect(Load.request(address, "none", "/v1/pets"), 5)
      process.kill("SIGUSR2")
      const snapshot = () => readdirSync(directory).find((name) => name.endsWith(".heapsnapshot"))
      while (snapshot() === undefined) yield* Effect.sleep("100 millis")
      // The snapshot is complete when the process responds again.
      yield* Load.request(address, "none", "/v1/pets")
      const [hasKey, hasRoute] = yield* Effect.promise(() =>
        includes(join(directory, snapshot() ?? ""), [key, "/v1/pets"])
      )
      assert.isTrue(hasRoute)
      assert.isFalse(hasKey)
    }), 240_000)
})

/** Returns for each of `texts` whether `file` contains it. */
const includes = async (file: string, texts: ReadonlyArray<string>): Promise<ReadonlyArray<boolean>> => {
  const found = texts.map(() => false)
  let rest = ""
  for await (const chunk of createReadStream(file, "latin1")) {
    const text = rest + String(chunk)
    for (const [index, each] of texts.entries()) found[index] ||= text.includes(each)
    rest = text.slice(-200)
  }
  return found
}
