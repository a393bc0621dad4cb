/** Tests the OpenAPI documents: against the tables of SPEC.md, as files, and with the linter of Redocly. */
import { assert, describe, expect, it } from "@effect/vitest"
import { OpenApi } from "effect/http-api"
import { spawnSync } from "node:child_process"
import { readFileSync } from "node:fs"
import { AdminApi } from "../../src/api/AdminApi.ts"
import { PetstoreApi } from "../../src/api/PetstoreApi.ts"
import type { Json } from "../conformance/Requests.ts"

const document = OpenApi.fromApi(PetstoreApi)

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
  const endpoints = ["4.1 List animals", "4.2 Add an animal", "4.3 Get an animal (deprecated)"].map((title) => {
    const text = section(title)
    const [, operationId = ""] = /Operation name: `(\w+)`/.exec(text) ?? []
    const [, operation = ""] = /Method and path: `(.+)`/.exec(text) ?? []
    return { text, operationId, operation: operations[operation] }
  })

  it("has exactly the operations of SPEC §4, with its responses and the headers of §8, and deprecates getPet", () => {
    assert.deepStrictEqual(Object.values(operations), endpoints.map(({ operation }) => operation))
    const limits = table(section("Rate limit headers"), "Header")
    for (const { Header = "", Meaning } of limits) {
      assert.containsSubset(headers[Header], { description: Meaning, schema: { type: "integer" } })
    }
    for (const { operation, operationId, text } of endpoints) {
      assert.strictEqual(operation.operationId, operationId)
      assert.strictEqual(operation.deprecated === true, operationId === "getPet")
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

const files = { "openapi.json": document, "admin-openapi.json": OpenApi.fromApi(AdminApi) }

describe("The documents in docs/api", () => {
  it.each(Object.entries(files))("have in %s what the service returns", async (file, value) => {
    await expect(`${JSON.stringify(value, null, 2)}\n`).toMatchFileSnapshot(`../../docs/api/${file}`)
  })

  it("pass Redocly's recommended-strict ruleset", () => {
    const redocly = ["node_modules/@redocly/cli/bin/cli.js", "lint", "--extends=recommended-strict"]
    const env = { ...process.env, REDOCLY_TELEMETRY: "off", REDOCLY_SUPPRESS_UPDATE_NOTICE: "true" }
    const paths = Object.keys(files).map((file) => `docs/api/${file}`)
    // Each warning is an error, with which the linter exits.
    const { status, stderr } = spawnSync(process.execPath, [...redocly, ...paths], { env, encoding: "utf8" })
    assert.strictEqual(status, 0, stderr)
  })
})
