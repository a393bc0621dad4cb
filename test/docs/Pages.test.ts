import { assert, describe, it } from "@effect/vitest"
import { OpenApi } from "effect/http-api"
import { spawnSync } from "node:child_process"
import { existsSync, readdirSync } from "node:fs"
import { dirname, join } from "node:path"
import * as Errors from "../../src/api/Errors.ts"
import { PetstoreApi } from "../../src/api/PetstoreApi.ts"
import { planLimits } from "../../src/api/Plans.ts"
import type { Json } from "../conformance/Requests.ts"
import { anchorsOf, codeBlocks, documents, readPage, root } from "../support/Documents.ts"

const withoutCode = (text: string): string => text.replaceAll(/^ *```.*?^ *```$/gms, "").replaceAll(/`[^`\n]*`/g, "``")

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
    for (const [name] of text.matchAll(/\btest\/[\w./-]+\.ts/g)) assert.isTrue(existsSync(join(root, name)), name)
    const { scripts } = JSON.parse(readPage("package.json"))
    for (const [, name = ""] of text.matchAll(/npm run ([\w:]+)/g)) assert.property(scripts, name)
    const links = [...withoutCode(text).matchAll(/\]\(([^)]*)\)/g)].map(([, link = ""]) => link)
    assert.deepStrictEqual(links.filter((link) => isBroken(document, link)), [])
  })

  it("has only shell and JSON blocks that parse", () => {
    const blocksIn = (name: string) => codeBlocks(text).flatMap(({ code, language }) => language === name ? [code] : [])
    for (const code of blocksIn("json")) JSON.parse(code)
    const { stderr } = spawnSync("bash", ["-n"], { input: blocksIn("sh").join("\n"), encoding: "utf8" })
    assert.strictEqual(stderr, "")
  })
})

describe("The pages", () => {
  const { components, info, paths } = JSON.parse(JSON.stringify(OpenApi.fromApi(PetstoreApi)))
  const [reference = "", errors = ""] = ["docs/reference.md", "docs/errors-and-limits.md"].map(readPage)

  it("have a row for each error code: its status, its cause, what it is charged to, and whether to retry", () => {
    for (const [code, status] of Object.values(Errors.errors)) {
      assert.match(
        errors,
        new RegExp(`^\\| ${status} \\| [^|]*\`${code}\`[^|]*\\| [^|]{20,} \\|(?: (?:yes|no) \\|)?$`, "m"),
        code
      )
    }
  })

  it("document every operation, parameter, field, status and header of the OpenAPI document", () => {
    for (const [path, methods] of Object.entries<Json>(paths)) {
      for (const [method, { parameters, responses }] of Object.entries<Json>(methods)) {
        const section = reference.split(/^## /m).find((text) => text.includes(`\`${method.toUpperCase()} /v1${path}\``))
        for (const { in: place, name } of parameters) {
          const text = place === "path" ? `{${name}}` : `\`${name}\``
          assert.include(section, place === "query" ? `\n| ${text} |` : text)
        }
        for (const [status, { headers }] of Object.entries<Json>(responses)) {
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

  it("describe each table of the schema, and name the schema version of the release", () => {
    const folder = "src/database/migrations"
    const migrations = readdirSync(join(root, folder)).map((name) => readPage(join(folder, name)))
    const tables = [...migrations.join("").matchAll(/CREATE TABLE (\w+)/g)].map(([, table]) => table)
    assert.isAbove(tables.length, 5)
    for (const table of tables) assert.include(readPage("docs/database.md"), `| \`${table}\` |`)
    assert.include(readPage("package/CHANGELOG.md").split(/^## /m)[1], `Schema version ${migrations.length}.`)
  })
})
