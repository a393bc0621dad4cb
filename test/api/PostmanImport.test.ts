/** Tests that Postman's import of the OpenAPI documents makes requests that the service accepts as they are. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { OpenApi } from "effect/http-api"
import { randomUUID } from "node:crypto"
import { promisify } from "node:util"
import { convertV2 } from "openapi-to-postmanv2"
import { AdminApi } from "../../src/api/AdminApi.ts"
import { PetstoreApi } from "../../src/api/PetstoreApi.ts"
import type { Json } from "../conformance/Requests.ts"
import { Management, serversOn } from "../management/Management.ts"
import { memory } from "../support/Databases.ts"
import { Service } from "../support/Service.ts"
import type { ReceivedResponse } from "../support/Sockets.ts"

const record = (variables: ReadonlyArray<Json>) => Object.fromEntries(variables.map(({ key, value }) => [key, value]))

/** The requests of a Postman collection, by name. */
const requestsOf = ({ item: items }: Json): Json =>
  Object.assign({}, ...items.map((one: Json) => one.item ? requestsOf(one) : { [one.name]: one.request }))

/** Imports a document without optional parameters: Postman makes up a value for those without an example. */
const importDocument = Effect.fnUntraced(function*(document: object) {
  const input = { type: "string", data: JSON.stringify(document) } as const
  const options = { parametersResolution: "Example", enableOptionalParameters: false } as const
  const result = yield* Effect.promise(() => promisify(convertV2)(input, options))
  const collection: Json = result?.output?.[0]?.data ?? assert.fail(result?.reason)
  return { variables: record(collection.variable), requests: requestsOf(collection) }
})

type Call = (path: string, options: Json) => Effect.Effect<ReceivedResponse>

/** Sends a request as Postman does, but with `id` in its path. It must succeed. Returns the body of the response. */
const makeSender = (requests: Json, call: Call) =>
  Effect.fnUntraced(function*(name: string, id?: string) {
    const request = JSON.stringify(requests[name]).replaceAll("{{$guid}}", randomUUID())
    const { auth, body, header, method, url } = JSON.parse(request)
    assert.deepInclude(auth.bearer, { key: "token", value: "{{bearerToken}}" })
    const ids = record(url.variable)
    const path = url.path.map((part: string) => part.startsWith(":") ? id ?? ids[part.slice(1)] : part).join("/")
    // Postman does not send disabled parameters.
    const query = new URLSearchParams(record(url.query.filter(({ disabled }: Json) => disabled !== true)))
    const headers = Object.fromEntries(new Headers(record(header)))
    const { status, text } = yield* call(`/${path}?${query.toString()}`, { method, headers, body: body?.raw })
    assert.include([200, 201, 204], status, `${name}: ${text}`)
    return text === "" ? undefined : JSON.parse(text)
  })

describe("Postman", () => {
  it.live("imports both OpenAPI documents as requests that the service accepts, and each create makes a new pet", () =>
    Effect.gen(function*() {
      const { call, newKey } = yield* Service
      const { admin } = yield* Management
      const key = yield* newKey
      const pets = yield* importDocument(OpenApi.fromApi(PetstoreApi))
      assert.strictEqual(pets.variables.baseUrl, "/v1")
      assert.hasAllKeys(pets.requests, ["List pets", "Create a pet", "Get a pet"])
      const send = makeSender(pets.requests, (path, options) => call(`/v1${path}`, { ...options, key }))
      for (const id of [1, 2]) assert.deepInclude(yield* send("Create a pet"), { id, name: "Rex" })
      assert.deepInclude(yield* send("Get a pet"), { id: 1, name: "Rex" })
      yield* send("List pets")

      const keys = yield* importDocument(OpenApi.fromApi(AdminApi))
      assert.strictEqual(keys.variables.management_url, "http://127.0.0.1:9090")
      const sendToAdmin = makeSender(
        keys.requests,
        (path, { body, headers, method }) =>
          admin(method, path.replace("/admin", ""), body && JSON.parse(body), headers)
      )
      const { id } = yield* sendToAdmin("Issue a key")
      const others = Object.keys(keys.requests).filter((name) => !/^(?:Issue|Revoke) a key$/.test(name))
      assert.lengthOf(others, 10)
      for (const name of [...others, "Revoke a key"]) yield* sendToAdmin(name, id)
    }).pipe(Effect.provide(Layer.fresh(serversOn(memory)))))
})
