import { assert, describe, expect, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { OpenApi } from "effect/http-api"
import { readFileSync } from "node:fs"
import { promisify } from "node:util"
import { convertV2 } from "openapi-to-postmanv2"
import { AdminApi } from "../../src/api/AdminApi.ts"
import { PetstoreApi } from "../../src/api/PetstoreApi.ts"
import type { Json } from "../conformance/Requests.ts"
import { Management, serversOn } from "../management/Management.ts"
import { memory } from "../support/Databases.ts"
import { root } from "../support/Documents.ts"
import { run } from "../support/NpmPrograms.ts"
import { Service } from "../support/Service.ts"
import type { ReceivedResponse } from "../support/Sockets.ts"

const document = OpenApi.fromApi(PetstoreApi)
const admin = OpenApi.fromApi(AdminApi)

const spec = readFileSync(new URL("../../src/api/SPEC.md", import.meta.url), "utf8")

/** Returns the text of SPEC.md under the heading that starts with `title`, up to the next heading. */
const section = (title: string): string => {
  const [, text] = spec.split(new RegExp(`^#+ ${title.replace(/[.()]/g, "\\$&")}.*$`, "m"))
  assert.isDefined(text, `SPEC.md has a section "${title}"`)
  return text?.split(/^#+ /m)[0] ?? ""
}

/** Returns the rows of the table in `text` whose first column has the heading `first`, as cells by column heading. */
const table = (text: string, first: string): ReadonlyArray<Record<string, string>> => {
  const [lines = ""] = new RegExp(`^\\| ${first} \\|.*(?:\n\\|.*)*`, "m").exec(text) ?? []
  const [headings = [], , ...rows] = lines.split("\n").map((line) =>
    line.split("|").slice(1, -1).map((cell) => cell.trim().replaceAll("`", ""))
  )
  assert.isNotEmpty(rows, `a table headed ${first}`)
  return rows.map((row) => Object.fromEntries(row.map((cell, index) => [headings[index] ?? "", cell])))
}

const { headers }: Json = document.components
const ref = (name: string) => ({ $ref: `#/components/schemas/${name}` })

const operations: Json = Object.fromEntries(
  Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => [`${method.toUpperCase()} ${path}`, operation])
  )
)

describe("The OpenAPI document", () => {
  const endpoints = [...spec.matchAll(/^### (4\..+)$/gm)].map(([, title = ""]) => {
    const text = section(title)
    const [, operationId = ""] = /Operation name: `(\w+)`/.exec(text) ?? []
    const [, operation = ""] = /Method and path: `(.+)`/.exec(text) ?? []
    return { text, operationId, operation: operations[operation], isDeprecated: title.endsWith("(deprecated)") }
  })

  it("has exactly the operations of SPEC §4, its responses, the headers of §8 and its deprecations", () => {
    assert.deepStrictEqual(Object.values(operations), endpoints.map(({ operation }) => operation))
    const limits = table(section("Rate limit headers"), "Header")
    for (const { Header = "", Meaning } of limits) {
      assert.containsSubset(headers[Header], { description: Meaning, schema: { type: "integer" } })
    }
    for (const { isDeprecated, operation, operationId, text } of endpoints) {
      assert.strictEqual(operation.operationId, operationId)
      assert.strictEqual(operation.deprecated === true, isDeprecated)
      for (const { Body = "", Status = "" } of table(text, "Status")) {
        const [body = ""] = /^\w+/.exec(Body) ?? []
        assert.deepStrictEqual(operation.responses[Status].content["application/json"].schema, ref(body))
      }
      for (const { headers } of Object.values<Json>(operation.responses)) {
        for (const { Header = "" } of limits) {
          assert.deepStrictEqual(headers[Header], { $ref: `#/components/headers/${Header}` })
        }
      }
    }
  })

  it("lets later versions add fields to every object", () => {
    assert.notInclude(JSON.stringify([document.components, admin.components]), `"additionalProperties":false`)
  })

  it("requires a bearer token (SPEC §5) on all operations, and has the version and the servers of SPEC", () => {
    assert.deepStrictEqual(document.security, [{ bearerAuth: [] }])
    assert.deepInclude(document.components.securitySchemes.bearerAuth, { scheme: "bearer", type: "http" })
    for (const { operation } of endpoints) assert.deepEqual(operation.security ?? document.security, document.security)
    assert.include(section("9. Versioning"), `The interface version is ${document.info.version}.`)
    const deployments = table(section("1. What the service does"), "Deployment")
    const servers = deployments.map((row) => ({ description: row.Deployment, url: row["Base address"]?.split(" ")[0] }))
    assert.containsSubset(document.servers, servers)
  })
})

const files = { "openapi.json": document, "admin-openapi.json": admin }

/** Postman does not send disabled parameters and headers. */
const record = (variables: ReadonlyArray<Json>) =>
  Object.fromEntries(variables.filter(({ disabled }) => disabled !== true).map(({ key, value }) => [key, value]))

/** The requests of a Postman collection, by name. */
const requestsOf = ({ item: items }: Json): Json =>
  Object.assign({}, ...items.map((one: Json) => one.item ? requestsOf(one) : { [one.name]: one.request }))

/** Imports a document, with or without its optional parameters. Postman makes up a value for those without an example. */
const importDocument = Effect.fnUntraced(function*(document: object, enableOptionalParameters = false) {
  const input = { type: "string", data: JSON.stringify(document) } as const
  const options = { parametersResolution: "Example", enableOptionalParameters } as const
  const result = yield* Effect.promise(() => promisify(convertV2)(input, options))
  const collection: Json = result?.output?.[0]?.data ?? assert.fail(result?.reason)
  return { variables: record(collection.variable), requests: requestsOf(collection) }
})

/** Sends a request as Postman does, but with `id` in its path. It must succeed. Returns the body of the response. */
const makeSender = (requests: Json, call: (path: string, options: Json) => Effect.Effect<ReceivedResponse>) =>
  Effect.fnUntraced(function*(name: string, id?: string) {
    const { auth, body, header, method, url } = requests[name]
    assert.deepInclude(auth.bearer, { key: "token", value: "{{bearerToken}}" })
    const ids = record(url.variable)
    const path = url.path.map((part: string) => part.startsWith(":") ? id ?? ids[part.slice(1)] : part).join("/")
    const query = new URLSearchParams(record(url.query))
    const headers = Object.fromEntries(new Headers(record(header)))
    const { status, text } = yield* call(`/${path}?${query.toString()}`, { method, headers, body: body?.raw })
    assert.include([200, 201, 204], status, `${name}: ${text}`)
    return text === "" ? undefined : JSON.parse(text)
  })

describe("The documents in docs/api", () => {
  it.each(Object.entries(files))("have in %s what the service returns", async (file, value) => {
    await expect(`${JSON.stringify(value, null, 2)}\n`).toMatchFileSnapshot(`../../docs/api/${file}`)
  })

  it.live("pass Redocly's recommended-strict ruleset, of which each warning is an error", () => {
    const redocly = ["node_modules/@redocly/cli/bin/cli.js", "lint", "--extends=recommended-strict"]
    const env = { REDOCLY_TELEMETRY: "off", REDOCLY_SUPPRESS_UPDATE_NOTICE: "true" }
    return run(root, process.execPath, [...redocly, ...Object.keys(files).map((file) => `docs/api/${file}`)], env)
  })

  it.live("are requests in Postman that the service accepts as they are, and each create makes a new pet", () =>
    Effect.gen(function*() {
      const { call, newKey } = yield* Service
      const { admin } = yield* Management
      const key = yield* newKey
      const pets = yield* importDocument(document)
      assert.strictEqual(pets.variables.baseUrl, "/v1")
      assert.hasAllKeys(pets.requests, Object.values(operations).map(({ summary }) => summary))
      const send = makeSender(pets.requests, (path, options) => call(`/v1${path}`, { ...options, key }))
      for (const id of [1, 2]) assert.deepInclude(yield* send("Create a pet"), { id, name: "Rex" })
      for (const name of Object.keys(pets.requests).filter((name) => name !== "Create a pet")) yield* send(name)
      assert.deepInclude(yield* send("Get a pet"), { id: 1, name: "Rex" })
      // With each optional parameter as in its example. The second create is a replay, because it has the same key.
      const all = yield* importDocument(document, true)
      const sendAll = makeSender(all.requests, (path, options) => call(`/v1${path}`, { ...options, key }))
      for (let i = 0; i < 2; i++) assert.deepInclude(yield* sendAll("Create a pet"), { id: 3 })
      assert.lengthOf(yield* sendAll("List pets"), 3)

      const { text } = yield* admin("GET", "/openapi.json")
      assert.strictEqual(text, JSON.stringify(files["admin-openapi.json"]))
      const keys = yield* importDocument(files["admin-openapi.json"])
      assert.strictEqual(keys.variables.management_url, "http://127.0.0.1:9090")
      const callAdmin = (path: string, { body, headers, method }: Json) =>
        admin(method, path.replace("/admin", ""), body && JSON.parse(body), headers)
      const sendToAdmin = makeSender(keys.requests, callAdmin)
      const { id } = yield* sendToAdmin("Issue a key")
      const others = Object.keys(keys.requests).filter((name) => !/^(?:Issue|Revoke) a key$/.test(name))
      assert.lengthOf(others, 10)
      for (const name of [...others, "Revoke a key"]) yield* sendToAdmin(name, id)
    }).pipe(Effect.provide(Layer.fresh(serversOn(memory)))))
})
