/** Tests that Postman's import of the OpenAPI documents makes requests that the service accepts as they are. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { randomUUID } from "node:crypto"
import { convertV2 } from "openapi-to-postmanv2"
import { temporaryDirectory } from "../support/Harness.ts"
import { start, until } from "../support/Process.ts"

type Variables = ReadonlyArray<{ readonly key: string; readonly value: string }>

/** A request of a Postman collection, or a folder of them. */
interface Item {
  readonly name: string
  readonly item?: ReadonlyArray<Item>
  readonly request?: {
    readonly method: string
    readonly url: Readonly<Record<"host" | "path", ReadonlyArray<string>> & Record<"query" | "variable", Variables>>
    readonly header: Variables
    readonly body?: { readonly raw?: string }
    readonly auth: { readonly type: string; readonly bearer: Variables }
  }
}

interface Collection {
  readonly item: ReadonlyArray<Item>
  readonly variable: Variables
}

const record = (variables: Variables) => Object.fromEntries(variables.map(({ key, value }) => [key, value]))

const requestsOf = (items: ReadonlyArray<Item>): ReadonlyArray<Item> =>
  items.flatMap((item) => item.item === undefined ? [item] : requestsOf(item.item))

/** Imports the document at a URL. By default Postman generates parameters from the examples. */
const importDocument = async (url: string): Promise<Collection> => {
  const data = await (await fetch(url)).text()
  return new Promise((resolve, reject) => {
    convertV2({ type: "string", data }, { parametersResolution: "Example" }, (error, converted) => {
      const collection = converted?.output?.[0]?.data
      if (collection === undefined) reject(new Error(error?.message ?? converted?.reason))
      else resolve(collection as Collection)
    })
  })
}

/** Returns a function that sends a request by its name, with the values of the collection and those of `known`. */
const makeSender = (collection: Collection, known: Readonly<Record<string, string>>) => {
  const variables: Readonly<Record<string, string>> = { ...record(collection.variable), ...known }
  /** Replaces variables as Postman does. It makes a new UUID for each `$guid`. */
  const resolve = (text: string): string =>
    text.replaceAll(
      /\{\{([$\w]+)\}\}/g,
      (_, name: string) => name === "$guid" ? randomUUID() : resolve(variables[name] ?? `no variable ${name}`)
    )
  const resolveAll = (all: Variables) => record(all.map(({ key, value }) => ({ key, value: resolve(value) })))
  return async (name: string, id?: string) => {
    const request = requestsOf(collection.item).find((item) => item.name === name)?.request
    if (request === undefined) throw new Error(`The collection has no request ${name}`)
    const { auth, body, header, method, url } = request
    assert.strictEqual(auth.type, "bearer")
    const ids = record(url.variable)
    const path = url.path.map((part) =>
      encodeURIComponent(part.startsWith(":") ? id ?? ids[part.slice(1)] ?? "" : part)
    )
    const query = new URLSearchParams(resolveAll(url.query))
    const response = await fetch(`${url.host.map(resolve).join(".")}/${path.join("/")}?${query.toString()}`, {
      method,
      headers: { ...resolveAll(header), authorization: `Bearer ${resolve(auth.bearer[0]?.value ?? "")}` },
      ...body?.raw !== undefined && { body: resolve(body.raw) }
    })
    const text = await response.text()
    assert.include([200, 201, 204], response.status, `${name}: ${text}`)
    return text === "" ? undefined : JSON.parse(text)
  }
}

const ADMIN_TOKEN = "adm_of_the_import"

describe("Postman", () => {
  it.live("imports both OpenAPI documents as requests that the service accepts, and each create makes a new pet", () =>
    Effect.gen(function*() {
      const { address, management, stdout } = yield* start({ DATA_DIR: yield* temporaryDirectory, ADMIN_TOKEN })
      yield* until(() => stdout().includes("curl"))
      const bearerToken = /psk_\w+/.exec(stdout())?.[0] ?? ""
      yield* Effect.promise(async () => {
        const pets = await importDocument(`${address}/openapi.json`)
        const names = requestsOf(pets.item).map(({ name }) => name)
        assert.sameMembers(names, ["List pets", "Create a pet", "Get a pet"])
        // The service of this test has another port than that of `npm start`.
        assert.deepInclude(pets.variable, { key: "base_url", value: "http://localhost:8080/v1" })
        const send = makeSender(pets, { base_url: `${address}/v1`, bearerToken })
        for (const id of [1, 2]) assert.deepInclude(await send("Create a pet"), { id, name: "Rex" })
        assert.deepInclude(await send("Get a pet"), { id: 1, name: "Rex" })
        await send("List pets")

        const admin = await importDocument(`${management}/admin/openapi.json`)
        assert.deepInclude(admin.variable, { key: "management_url", value: "http://127.0.0.1:9090" })
        const sendToAdmin = makeSender(admin, { management_url: management, bearerToken: ADMIN_TOKEN })
        const { id } = await sendToAdmin("Issue a key")
        const others = requestsOf(admin.item).map(({ name }) => name)
          .filter((name) => !["Issue a key", "Revoke a key"].includes(name))
        assert.lengthOf(others, 8)
        for (const name of [...others, "Revoke a key"]) await sendToAdmin(name, id)
      })
    }))
})
