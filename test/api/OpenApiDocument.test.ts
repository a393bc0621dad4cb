/** Tests the OpenAPI documents: against the tables of SPEC.md, as files, and with the linters Redocly and Spectral. */
import { assert, describe, expect, it } from "@effect/vitest"
import { type RulesetDefinition, Spectral } from "@stoplight/spectral-core"
import { oas } from "@stoplight/spectral-rulesets"
import { execFile } from "node:child_process"
import { readFileSync } from "node:fs"
import { promisify } from "node:util"
import { adminOpenApiDocument } from "../../src/api/AdminOpenApiDocument.ts"
import { openApiDocument as document } from "../../src/api/OpenApiDocument.ts"

const spec = readFileSync(new URL("../../src/api/SPEC.md", import.meta.url), "utf8")

/** Returns the text of SPEC.md under the heading that starts with `title`, up to the next heading. */
const section = (title: string): string => {
  const [, text] = spec.split(new RegExp(`^#+ ${title.replace(/[.()]/g, "\\$&")}.*$`, "m"))
  assert.isDefined(text, `SPEC.md has a section "${title}"`)
  return text?.split(/^#+ /m)[0] ?? ""
}

/** Returns the rows of the table in `text` whose first column has the heading `first`, as cells by column heading. */
const table = (text: string, first: string): ReadonlyArray<Record<string, string>> => {
  const cells = (line: string) => line.split("|").slice(1, -1).map((cell) => cell.trim().replaceAll("`", ""))
  const lines = text.split("\n")
  const start = lines.findIndex((line) => line.startsWith(`| ${first} |`))
  assert.isAtLeast(start, 0, `a table headed ${first}`)
  const headings = cells(lines[start] ?? "")
  const end = lines.findIndex((line, index) => index > start && !line.startsWith("|"))
  return lines.slice(start + 2, end === -1 ? undefined : end).map((line) =>
    Object.fromEntries(cells(line).map((cell, index) => [headings[index] ?? "", cell]))
  )
}

// oxlint-disable-next-line typescript/no-explicit-any -- the tests read any JSON document, without types
type Json = { readonly [key: string]: any }
const schemas: Json = document.components.schemas
const { headers }: Json = document.components
const resolve = (schema: Json): Json => schema.$ref ? schemas[schema.$ref.split("/").at(-1)] : schema
const ref = (name: string) => ({ $ref: `#/components/schemas/${name}` })

const operations: Json = Object.fromEntries(
  Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => [`${method.toUpperCase()} ${path}`, operation])
  )
)

describe("The OpenAPI document", () => {
  for (const name of ["Pet", "NewPet", "Error"]) {
    it(`has the fields of SPEC §2 in ${name}: names, types, formats, required`, () => {
      const title = name === "Pet" ? "Pet (an" : name
      const rows = table(section(title), "Field")
      const schema = resolve(ref(name))
      assert.strictEqual(schema.type, "object")
      assert.deepStrictEqual(Object.keys(schema.properties), rows.map(({ Field }) => Field))
      assert.deepStrictEqual(
        schema.required,
        rows.filter(({ Required }) => Required === "yes").map(({ Field }) => Field)
      )
      for (const { Field = "", Format = "", Type } of rows) {
        const property = schema.properties[Field]
        if (Format === "enum PetStatus") assert.deepStrictEqual(property, ref("PetStatus"))
        else assert.strictEqual(property.format ?? "", Format, Field)
        assert.strictEqual(resolve(property).type, Type, Field)
        assert.isAbove(resolve(property).description.length, 0, Field)
      }
    })
  }

  it("has exactly the values of PetStatus in SPEC §2, and Pets as an array of Pet", () => {
    const values = [...section("PetStatus").matchAll(/`(\w+)`/g)].map(([, value]) => value)
    assert.lengthOf(values, 3)
    assert.deepStrictEqual(schemas.PetStatus.enum, values)
    assert.strictEqual(schemas.PetStatus.type, "string")
    assert.strictEqual(schemas.Pets.type, "array")
    assert.deepStrictEqual(schemas.Pets.items, ref("Pet"))
    assert.sameMembers(Object.keys(schemas), ["Pet", "NewPet", "PetStatus", "Pets", "Error"])
    assert.strictEqual(schemas.NewPet.properties.name.maxLength, 1_000)
  })

  const endpoints = ["4.1 List animals", "4.2 Add an animal", "4.3 Get an animal (deprecated)"].map((title) => {
    const text = section(title)
    const [, operationId = ""] = /Operation name: `(\w+)`/.exec(text) ?? []
    const [, operation = ""] = /Method and path: `(.+)`/.exec(text) ?? []
    return { text, operationId, operation: operations[operation] }
  })

  it("has exactly the operations of SPEC §4, with their names, methods and paths", () => {
    assert.deepStrictEqual(Object.values(operations), endpoints.map(({ operation }) => operation))
    for (const { operation, operationId } of endpoints) assert.strictEqual(operation.operationId, operationId)
  })

  it("has the parameters of SPEC §4, with type, required, minimum, maximum and default", () => {
    const [list, create, get] = endpoints.map(({ operation }) => operation)
    const rows = table(section("4.1 List animals"), "Name")
    const paging = ["cursor"]
    assert.deepStrictEqual(list.parameters.map(({ name }: Json) => name), [...rows.map(({ Name }) => Name), ...paging])
    const bounds = table(section("Parameter bounds"), "Limit")[0]?.Value
    for (const [index, { Constraints = "", Default, Required }] of rows.entries()) {
      const { in: place, name, required, schema } = list.parameters[index]
      assert.strictEqual(place, "query")
      assert.strictEqual(required, Required === "yes")
      if (name === "limit") {
        const { default: limit, maximum, minimum, type } = schema
        assert.strictEqual(type, "integer")
        assert.strictEqual(`minimum ${minimum}, maximum ${maximum}`, Constraints)
        assert.strictEqual(String(limit), Default)
        assert.strictEqual(bounds, `${Constraints}, default ${Default}`)
      } else {
        assert.deepStrictEqual(schema, ref("PetStatus"))
      }
    }
    assert.deepStrictEqual(
      create.parameters.map((parameter: Json) => [parameter.in, parameter.name, parameter.required]),
      [["header", "Idempotency-Key", false]]
    )
    const idempotencyKey = new RegExp(create.parameters[0].schema.pattern)
    assert.isTrue(["a", `"a"`, "a".repeat(255)].every((key) => idempotencyKey.test(key)))
    assert.isFalse(["", `""`, "a b", "a".repeat(256)].some((key) => idempotencyKey.test(key)))
    assert.deepStrictEqual(create.requestBody, {
      required: true,
      content: {
        "application/json": {
          schema: ref("NewPet"),
          examples: { example: { value: { name: "Rex", categoryId: 3, status: "available" } } }
        }
      }
    })
    const [{ description, ...petId }] = get.parameters
    assert.match(description, /^Identifier of the pet\./)
    assert.deepStrictEqual(
      petId,
      { name: "petId", in: "path", required: true, schema: { type: "integer", format: "int64" }, example: 1 }
    )
  })

  it("has the responses of SPEC §4 and §8 with their bodies, and the additional responses of the service", () => {
    const onEveryOperation = ["400", "401", "408", "413", "415", "417", "429", "431", "500", "503"]
    const additional: Record<string, ReadonlyArray<string>> = { createPet: ["422"], getPet: ["410"] }
    for (const { operation, operationId, text } of endpoints) {
      const rows = table(text, "Status")
      const statuses = new Set([
        ...rows.map(({ Status }) => Status),
        ...onEveryOperation,
        ...additional[operationId] ?? []
      ])
      assert.sameMembers(Object.keys(operation.responses), [...statuses])
      for (const status of statuses) {
        const body = rows.find(({ Status }) => Status === status)?.Body ?? "Error"
        const name = /^\w+/.exec(body)?.[0] ?? ""
        const { examples, schema } = operation.responses[status ?? ""].content["application/json"]
        assert.deepStrictEqual(schema, ref(name))
        for (const { value } of Number(status) < 400 ? [] : Object.values<Json>(examples ?? {})) {
          assert.strictEqual(String(value.status), status)
          assert.hasAllKeys(value, Object.keys(schemas.Error.properties))
        }
      }
    }
  })

  it("has the headers of SPEC §8 on every response, and the additional headers of the service", () => {
    const rows = table(section("Rate limit headers"), "Header")
    const names = rows.map(({ Header = "" }) => Header)
    const additional = [
      "X-RateLimit-Scope",
      "RateLimit-Policy",
      "RateLimit",
      "X-Request-Id",
      "Cache-Control",
      "X-Content-Type-Options",
      "Content-Security-Policy"
    ]
    const special: Record<string, ReadonlyArray<string>> = {
      "200": ["Link"],
      "201": ["Location", "Idempotent-Replayed"],
      "401": ["WWW-Authenticate"],
      "429": ["Retry-After"],
      "503": ["Retry-After"]
    }
    for (const { operation, operationId } of endpoints) {
      for (const [status, response] of Object.entries<Json>(operation.responses)) {
        const isBeforeRouting = ["408", "431"].includes(status)
        const deprecation = operationId === "getPet" && !isBeforeRouting ? ["Deprecation", "Sunset", "Link"] : []
        assert.sameMembers(Object.keys(response.headers), [
          ...new Set([...names, ...additional, ...special[status] ?? [], ...deprecation])
        ])
        for (const { Header = "", Meaning } of rows) {
          assert.deepStrictEqual(response.headers[Header], { $ref: `#/components/headers/${Header}` })
          const { description, schema } = headers[Header]
          assert.strictEqual(description, Meaning)
          assert.strictEqual(schema.type, "integer")
        }
      }
    }
  })

  it("requires a bearer token (SPEC §5), deprecates only getPet (§4.3), and has version and servers", () => {
    assert.deepStrictEqual(document.security, [{ bearerAuth: [] }])
    const { scheme, type } = document.components.securitySchemes.bearerAuth as Json
    assert.deepStrictEqual({ scheme, type }, { scheme: "bearer", type: "http" })
    for (const { operation, operationId } of endpoints) {
      assert.deepStrictEqual(operation.security ?? document.security, document.security)
      assert.strictEqual(operation.deprecated === true, operationId === "getPet")
    }
    assert.include(section("9. Versioning"), `The interface version is ${document.info.version}.`)
    const deployments = table(section("1. What the service does"), "Deployment").map((row) => [
      row.Deployment,
      row["Base address"]?.split(" ")[0]
    ])
    assert.deepStrictEqual(
      document.servers?.map(({ description, url }) => [description, url]),
      [...deployments, ["The deployment that returned this document", "/v1"]]
    )
  })

  it("describes each parameter, and warns of rounded integers", () => {
    for (const { operation } of endpoints) {
      for (const { description, name } of operation.parameters) assert.isAbove((description ?? "").length, 9, name)
    }
    for (const property of [schemas.Pet.properties.id, schemas.NewPet.properties.categoryId]) {
      assert.match(property.description, /JSON\.parse.* round it beyond 2\^53/)
    }
  })
})

for (
  const { file, value } of [
    { file: "openapi.json", value: document },
    { file: "admin-openapi.json", value: adminOpenApiDocument }
  ]
) {
  describe(`docs/api/${file}`, () => {
    it("equals the document that the service returns", async () => {
      await expect(`${JSON.stringify(value, null, 2)}\n`).toMatchFileSnapshot(`../../docs/api/${file}`)
    })

    it("passes the strictest recommended rules of Redocly", async () => {
      const linted = await promisify(execFile)(
        process.execPath,
        [
          "node_modules/@redocly/cli/bin/cli.js",
          "lint",
          "--extends=recommended-strict",
          "--format=json",
          `docs/api/${file}`
        ],
        { env: { ...process.env, REDOCLY_TELEMETRY: "off", REDOCLY_SUPPRESS_UPDATE_NOTICE: "true" } }
      )
      assert.deepStrictEqual(JSON.parse(linted.stdout).totals, { errors: 0, warnings: 0, ignored: 0 })
    })

    it("passes all rules of Spectral, but that the operator has an address", async () => {
      const spectral = new Spectral()
      // The addresses of the operator are not known here.
      spectral.setRuleset({
        // The types of the rules do not allow for `exactOptionalPropertyTypes`.
        extends: [[oas as unknown as RulesetDefinition, "all"]],
        rules: { "contact-properties": "off" }
      })
      assert.deepStrictEqual(await spectral.run(readFileSync(`docs/api/${file}`, "utf8")), [])
      // The linter finds faults in a document that has them.
      const { info: _, ...broken }: Json = value
      assert.isAbove((await spectral.run(JSON.stringify(broken))).length, 0)
    }, 30_000)
  })
}

describe("The OpenAPI document of the management port", () => {
  it("has each operation of AdminApi with summary, description, token, an example request and its errors", () => {
    const operationsOfAdmin: ReadonlyArray<Json> = Object.values<Json>(adminOpenApiDocument.paths)
      .flatMap((item) => Object.values<Json>(item))
    assert.sameMembers(operationsOfAdmin.map(({ operationId }) => operationId), [
      "issueKey",
      "listKeys",
      "showKey",
      "showUsage",
      "updateKey",
      "revokeKey",
      "rotateKey",
      "endFormerSecrets",
      "unbanKey",
      "listAudit"
    ])
    for (
      const { description, operationId, parameters, requestBody, responses, security, summary } of operationsOfAdmin
    ) {
      assert.isAbove(summary.length, 5, operationId)
      assert.isAbove(description.length, 9, operationId)
      assert.deepStrictEqual(security, [{ adminToken: [] }])
      for (const { description: ofParameter, name } of parameters) assert.isAbove(ofParameter.length, 9, name)
      const body = requestBody?.content["application/json"]
      if (body !== undefined) assert.isDefined(body.examples.example.value, operationId)
      for (const [status, { content, description: ofResponse }] of Object.entries<Json>(responses)) {
        assert.match(ofResponse, /^\w.* /, `${operationId} ${status}`)
        if (status < "400") continue
        const errors = Object.values<Json>(content["application/json"].examples)
        assert.isNotEmpty(errors, `${operationId} ${status}`)
        for (const error of errors) assert.strictEqual(String(error.value.status), status)
      }
    }
  })
})
