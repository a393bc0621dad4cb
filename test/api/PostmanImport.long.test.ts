/** Tests that Postman's import of the OpenAPI documents makes requests that the service accepts as they are. */
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { randomUUID } from "node:crypto"
import { convertV2 } from "openapi-to-postmanv2"
import { temporaryDirectory } from "../support/Harness.ts"
import { start, until } from "../support/Process.ts"

interface Variable {
  readonly key: string
  readonly value: string
}

/** A request of a Postman collection, or a folder of them. */
interface Item {
  readonly name: string
  readonly item?: ReadonlyArray<Item>
  readonly request?: {
    readonly method: string
    readonly url: {
      readonly host: ReadonlyArray<string>
      readonly path: ReadonlyArray<string>
      readonly query: ReadonlyArray<Variable>
      readonly variable: ReadonlyArray<Variable>
    }
    readonly header: ReadonlyArray<Variable>
    readonly body?: { readonly raw?: string }
    readonly auth: { readonly type: string; readonly bearer: ReadonlyArray<Variable> }
  }
}

interface Collection {
  readonly item: ReadonlyArray<Item>
  readonly variable: ReadonlyArray<Variable>
}

/** Imports a document. By default Postman generates parameters from the examples. */
const importDocument = (text: string) =>
  Effect.promise(() =>
    new Promise<Collection>((resolve, reject) => {
      convertV2({ type: "string", data: text }, { parametersResolution: "Example" }, (error, converted) => {
        const data = converted?.output?.[0]?.data
        if (data === undefined) reject(new Error(error?.message ?? converted?.reason))
        else resolve(data as Collection)
      })
    })
  )

const requestsOf = (items: ReadonlyArray<Item>): ReadonlyArray<Item> =>
  items.flatMap((item) => item.item === undefined ? [item] : requestsOf(item.item))

/** Returns a function that sends a request by its name, with the values of the collection and those of `known`. */
const makeSender = (collection: Collection, known: Readonly<Record<string, string>>) => {
  const variables: Readonly<Record<string, string>> = {
    ...Object.fromEntries(collection.variable.map(({ key, value }) => [key, value])),
    ...known
  }
  /** Replaces variables as Postman does. It makes a new UUID for each `$guid`. */
  const resolve = (text: string): string =>
    text.replaceAll(
      /\{\{([$\w]+)\}\}/g,
      (_, name: string) => name === "$guid" ? randomUUID() : resolve(variables[name] ?? `no variable ${name}`)
    )
  return (name: string, parameters: Readonly<Record<string, string>> = {}) =>
    Effect.promise(async () => {
      const request = requestsOf(collection.item).find((item) => item.name === name)?.request
      if (request === undefined) throw new Error(`The collection has no request ${name}`)
      const { auth, body, header, method, url } = request
      const values = Object.fromEntries(url.variable.map(({ key, value }) => [`:${key}`, parameters[key] ?? value]))
      const path = url.path.map((part) => encodeURIComponent(values[part] ?? part)).join("/")
      const query = new URLSearchParams(Object.fromEntries(url.query.map(({ key, value }) => [key, resolve(value)])))
      assert.strictEqual(auth.type, "bearer")
      const response = await fetch(`${url.host.map(resolve).join(".")}/${path}?${query.toString()}`, {
        method,
        headers: {
          ...Object.fromEntries(header.map(({ key, value }) => [key, resolve(value)])),
          authorization: `Bearer ${resolve(auth.bearer[0]?.value ?? "")}`
        },
        ...body?.raw !== undefined && { body: resolve(body.raw) }
      })
      const text = await response.text()
      return { status: response.status, body: text === "" ? undefined : JSON.parse(text), text }
    })
}

const textOf = (url: string) => Effect.promise(async () => (await fetch(url)).text())

const ADMIN_TOKEN = "adm_of_the_import"

/** The running service, with an API key. */
class Running extends Context.Service<Running, {
  readonly address: string
  readonly management: string
  readonly apiKey: string
}>()("test/api/PostmanImport/Running") {
  static readonly layer = Layer.effect(
    Running,
    Effect.gen(function*() {
      const { address, management, stdout } = yield* start({ DATA_DIR: yield* temporaryDirectory, ADMIN_TOKEN })
      yield* until(() => stdout().includes("curl"))
      return { address, management, apiKey: /psk_\w+/.exec(stdout())?.[0] ?? "" }
    })
  )
}

layer(Running.layer, { excludeTestServices: true, timeout: 120_000 })("Postman's import", (it) => {
  it.effect(
    "of /openapi.json makes requests that the service accepts, and each create makes a new pet",
    () =>
      Effect.gen(function*() {
        const { address, apiKey } = yield* Running
        const collection = yield* importDocument(yield* textOf(`${address}/openapi.json`))
        assert.sameMembers(requestsOf(collection.item).map(({ name }) => name), [
          "List pets",
          "Create a pet",
          "Get a pet"
        ])
        // The service of this test has another port than that of `npm start`.
        assert.deepInclude(collection.variable, { key: "base_url", value: "http://localhost:8080/v1" })
        const send = makeSender(collection, { base_url: `${address}/v1`, bearerToken: apiKey })
        for (const id of [1, 2]) {
          const created = yield* send("Create a pet")
          assert.deepStrictEqual([created.status, created.body.id, created.body.name], [201, id, "Rex"], created.text)
        }
        assert.deepInclude((yield* send("Get a pet")).body, { id: 1, name: "Rex" })
        const listed = yield* send("List pets")
        assert.strictEqual(listed.status, 200, listed.text)
      }),
    60_000
  )

  it.effect(
    "of /admin/openapi.json makes requests that the management port accepts, given the id of a key",
    () =>
      Effect.gen(function*() {
        const { management } = yield* Running
        const collection = yield* importDocument(yield* textOf(`${management}/admin/openapi.json`))
        assert.deepInclude(collection.variable, { key: "management_url", value: "http://127.0.0.1:9090" })
        const send = makeSender(collection, { management_url: management, bearerToken: ADMIN_TOKEN })
        const issued = yield* send("Issue a key")
        assert.strictEqual(issued.status, 201, issued.text)
        const others = requestsOf(collection.item).map(({ name }) => name)
          .filter((name) => !["Issue a key", "Revoke a key"].includes(name))
        assert.lengthOf(others, 8)
        for (const name of [...others, "Revoke a key"]) {
          const { status, text } = yield* send(name, { id: issued.body.id })
          assert.include([200, 204], status, `${name}: ${text}`)
        }
      }),
    60_000
  )
})
