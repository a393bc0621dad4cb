/** Tests `examples/categories` as two processes on one database. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { fileURLToPath } from "node:url"
import { hasServer, temporaryDatabaseUrl } from "../support/Databases.ts"
import { issue, type Running, send, start, untilTrue } from "../support/Process.ts"

const main = fileURLToPath(new URL("../../examples/categories/main.ts", import.meta.url))
const command = [process.execPath, "--disable-warning=ExperimentalWarning", main]

/** The lease of the cache is one second. The rest is for a busy machine. */
const maxSeconds = 3

describe.skipIf(!hasServer)("Two processes with categories", () => {
  it.live("start together, and show each other's changes and deletions within the lease of their caches", () =>
    Effect.gen(function*() {
      const DATABASE_URL = yield* temporaryDatabaseUrl
      const [one, two] = yield* Effect.all([start({ DATABASE_URL }, command), start({ DATABASE_URL }, command)], {
        concurrency: 2
      })
      const { key } = yield* issue(one)
      const path = "/v1/categories"
      const on = ({ address }: Running, method: string, url: string, body?: object) =>
        send(`${address}${url}`, key, method, body)
      const create = (name: string) => on(one, "POST", path, { name, slug: "a" })
      const { body: { id } } = yield* create("Dogs")
      yield* create("Cats")
      /** What the second process shows: the item, and the first page of one item, which is full and so cached. */
      const shown = Effect.gen(function*() {
        const [item, page] = [yield* on(two, "GET", `${path}/${id}`), yield* on(two, "GET", `${path}?limit=1`)]
        return `${item.body.name ?? item.status} ${page.body[0]?.name}`
      })
      const untilShown = (text: string) => untilTrue(Effect.map(shown, (now) => now === text), text, maxSeconds)
      for (const _ of ["read", "cached"]) assert.strictEqual(yield* shown, "Dogs Dogs")
      assert.strictEqual((yield* on(one, "PATCH", `${path}/${id}`, { name: "Hounds" })).status, 200)
      assert.strictEqual((yield* on(one, "GET", `${path}/${id}`)).body.name, "Hounds")
      yield* untilShown("Hounds Hounds")
      assert.strictEqual((yield* on(two, "DELETE", `${path}/${id}`)).status, 204)
      assert.strictEqual(yield* shown, "404 Cats")
      yield* untilTrue(
        Effect.map(on(one, "GET", `${path}/${id}`), ({ status }) => status === 404),
        "404 on the other process",
        maxSeconds
      )
    }))
})
