/** Tests that the pages name files, scripts and headings that exist, and that they have the whole contract. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { OpenApi } from "effect/http-api"
import { spawnSync } from "node:child_process"
import { existsSync, readdirSync } from "node:fs"
import { dirname, join } from "node:path"
import * as Errors from "../../src/api/Errors.ts"
import { PetstoreApi } from "../../src/api/PetstoreApi.ts"
import { planLimits } from "../../src/api/Plans.ts"
import { AdminClient, PetstoreClient } from "../../src/client/Clients.ts"
import { anchorsOf, codeBlocks, documents, readPage, root } from "../support/Documents.ts"

const withoutCode = (text: string): string => text.replaceAll(/^ *```.*?^ *```$/gms, "").replaceAll(/`[^`\n]*`/g, "``")

/** Whether a link of a page leads to no file or to no heading of a file. */
const isBroken = (document: string, link: string): boolean => {
  if (/^https?:/.test(link)) return false
  const [file = "", anchor] = link.split("#")
  const path = file === "" ? document : join(dirname(document), file)
  return !existsSync(join(root, path)) || anchor !== undefined && !anchorsOf(readPage(path)).includes(anchor)
}

describe.each(documents)("The page %s", (document) => {
  const text = readPage(document)

  it("names only existing files and scripts, and has no broken link", () => {
    for (const [, name = ""] of text.matchAll(/`((?:[\w.-]+\/)+[\w.-]+\.(?:ts|md|yaml))`/g)) {
      assert.isTrue(existsSync(join(root, name)) || existsSync(join(root, "src", name)), name)
    }
    const { scripts } = JSON.parse(readPage("package.json"))
    for (const [, name = ""] of text.matchAll(/npm run ([\w:]+)/g)) assert.property(scripts, name)
    const links = [...withoutCode(text).matchAll(/\]\(([^)]*)\)/g)].map(([, link = ""]) => link)
    assert.deepStrictEqual(links.filter((link) => isBroken(document, link)), [])
  })

  it("has only shell and JSON blocks that parse", () => {
    for (const { code, language, line } of codeBlocks(text)) {
      if (language === "json") JSON.parse(code)
      if (language !== "sh") continue
      assert.strictEqual(spawnSync("bash", ["-n"], { input: code }).status, 0, `${document}:${line}`)
    }
  })
})

describe("The README", () => {
  it("links to all pages of docs", () => {
    const pages = documents.filter((name) => name.startsWith("docs/"))
    assert.deepStrictEqual(pages.filter((page) => !readPage("README.md").includes(`](${page})`)), [])
  })
})

describe("The client's page", () => {
  const clients = Layer.merge(
    PetstoreClient.layer({ baseUrl: "http://localhost", apiKey: Redacted.make("") }),
    AdminClient.layer({ baseUrl: "http://localhost", token: Redacted.make("") })
  )
  it.effect("names each call of both clients", () =>
    Effect.gen(function*() {
      const page = readPage("package/README.md")
      for (const client of [yield* PetstoreClient, yield* AdminClient]) {
        for (const name of Object.keys(client)) assert.include(page, `\n| \`${name}`)
      }
    }).pipe(Effect.provide(clients)))
})

interface Operation {
  readonly parameters: ReadonlyArray<{ readonly name: string; readonly in: string }>
  readonly responses: Readonly<Record<string, { readonly headers?: object }>>
}

describe("The callers' pages", () => {
  const { components, info, paths } = JSON.parse(JSON.stringify(OpenApi.fromApi(PetstoreApi)))
  const reference = readPage("docs/reference.md")
  const errors = readPage("docs/errors-and-limits.md")

  it("have a row for each error code, with its status, cause, charge and retry", () => {
    for (const error of Errors.errorClasses) {
      const { code: { schema: { literal: code } }, status: { schema: { literal: status } } } = error.fields
      assert.match(errors, new RegExp(`^\\| ${status} \\| .*\`${code}\`.* \\|$`, "m"))
    }
  })

  it("document every operation, parameter, field, status and header of the OpenAPI document", () => {
    for (const [path, methods] of Object.entries<Readonly<Record<string, Operation>>>(paths)) {
      for (const [method, { parameters, responses }] of Object.entries(methods)) {
        const section = reference.split(/^## /m).find((text) => text.includes(`\`${method.toUpperCase()} /v1${path}\``))
        for (const { in: place, name } of parameters) {
          assert.include(
            section,
            place === "query" ? `\n| \`${name}\` |` : place === "path" ? `{${name}}` : `\`${name}\``
          )
        }
        for (const [status, { headers = {} }] of Object.entries(responses)) {
          if (Number(status) < 400) assert.include(section, `\nHTTP/1.1 ${status} `)
          else assert.include(errors, `\n| ${status} | \``)
          for (const name of Object.keys(headers)) assert.include(reference + errors, `\`${name}\``)
        }
      }
    }
    for (const name of Object.keys(components.schemas.Pet.properties)) assert.include(reference, `| \`${name}\` |`)
    assert.include(reference, `the interface version is ${info.version}`)
  })

  it("state the limits of every plan", () => {
    for (const [plan, { perDay, perMinute }] of Object.entries(planLimits)) {
      const row = `| ${plan} | ${perMinute.toLocaleString("en")} | ${perDay.toLocaleString("en")} |`
      assert.include(errors.toLowerCase(), row)
    }
  })
})

describe("The database page", () => {
  it("describes each table of the schema", () => {
    const folder = "src/database/migrations"
    const source = readdirSync(join(root, folder)).map((name) => readPage(join(folder, name))).join("")
    const tables = [...source.matchAll(/CREATE TABLE (\w+)/g)].map(([, table = ""]) => table)
    assert.isAbove(tables.length, 5)
    for (const table of tables) assert.include(readPage("docs/database.md"), `| \`${table}\` |`)
  })
})

describe("The changelog", () => {
  it("names the schema version of the release", () => {
    const version = readdirSync(join(root, "src/database/migrations")).length
    assert.include(readPage("package/CHANGELOG.md").split(/^## /m)[1], `Schema version ${version}.`)
  })
})
