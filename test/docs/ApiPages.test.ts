/** Tests that the pages of `docs/api` describe the whole contract: its errors, statuses, headers and fields. */
import { assert, describe, it } from "@effect/vitest"
import * as Errors from "../../src/api/Errors.ts"
import { openApiDocument } from "../../src/api/OpenApiDocument.ts"
import { planLimits } from "../../src/api/Plans.ts"
import { codeBlocks, pagesBelow, readPage } from "../support/Documents.ts"

const errorsPage = readPage("docs/api/errors.md")
const pages = pagesBelow("docs/api").map(readPage).join("\n")

/** Returns the section of the page of errors with this heading, up to the next heading. */
const sectionOf = (code: string): string => {
  const [, section = ""] = new RegExp(`^##+ ${code}\\n(.*?)(?=^##|$(?![^]))`, "ms").exec(errorsPage) ?? []
  return section
}

/** The parts of the OpenAPI document that the pages describe. */
interface Contract {
  readonly paths: Readonly<
    Record<
      string,
      Readonly<
        Record<string, {
          readonly parameters: ReadonlyArray<{ readonly name: string }>
          readonly responses: Readonly<Record<string, { readonly headers?: Readonly<Record<string, unknown>> }>>
        }>
      >
    >
  >
  readonly components: {
    readonly schemas: { readonly Pet: { readonly properties: Readonly<Record<string, unknown>> } }
  }
}

const { components, paths }: Contract = JSON.parse(JSON.stringify(openApiDocument))
const operations = Object.values(paths).flatMap((path) => Object.values(path))
const responses = operations.flatMap((operation) => Object.entries(operation.responses))

describe("The pages of docs/api", () => {
  for (const error of Errors.errorClasses) {
    const { code: { schema: { literal: code } }, status: { schema: { literal: status } } } = error.fields

    it(`describe ${code}: its cause, an example body, whether to retry, and what to do`, () => {
      const section = sectionOf(code)
      const [example] = codeBlocks(section)
      assert.strictEqual(example?.language, "json", section)
      const body = JSON.parse(example?.code ?? "{}")
      assert.deepStrictEqual(Object.keys(body), ["code", "message", "status"])
      assert.deepInclude(body, { code, status })
      const documented = Errors.examples.find((one) => one.code === code)
      if (documented !== undefined) assert.strictEqual(body.message, documented.message)
      for (const part of ["**Cause.**", "**Retry.**"]) assert.include(section, part)
      assert.match(section, /\*\*What to do\.\*\*|correct it by/)
    })
  }

  it("name every status and every header of the OpenAPI document", () => {
    assert.isAbove(responses.length, 20)
    for (const [status, { headers = {} }] of responses) {
      assert.match(pages, new RegExp(`\\b${status}\\b`))
      for (const name of Object.keys(headers)) assert.include(pages, `\`${name}\``)
    }
  })

  it("name every operation, parameter and field of the OpenAPI document", () => {
    const page = readPage("docs/api/pets.md")
    for (const [path, methods] of Object.entries(paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        assert.include(page, `\`${method.toUpperCase()} /v1${path}\``)
        for (const { name } of operation.parameters) {
          assert.include(page.toLowerCase(), `\`${name.toLowerCase()}\``)
        }
      }
    }
    for (const name of Object.keys(components.schemas.Pet.properties)) assert.include(page, `| \`${name}\` |`)
  })

  it("show every operation with curl, JavaScript, Python and the Effect client", () => {
    const sections = readPage("docs/api/pets.md").split(/^## /m).filter((section) => /^`[A-Z]+ \/v1/m.test(section))
    assert.lengthOf(sections, operations.length)
    for (const section of sections) {
      assert.includeMembers(codeBlocks(section).map(({ language }) => language), ["sh", "js", "python", "ts"])
    }
  })

  it("name the version of the contract and its prefix", () => {
    const page = readPage("docs/api/versioning.md")
    assert.include(page, `The interface version is ${openApiDocument.info.version}.`)
    for (const path of Object.keys(paths)) assert.match(pages, new RegExp(`/v1${path.replace(/[{}]/g, "\\$&")}`))
  })

  it("name the limits of every plan", () => {
    const page = readPage("docs/api/rate-limits.md").toLowerCase()
    for (const [plan, { perDay, perMinute }] of Object.entries(planLimits)) {
      assert.include(page, `| ${plan} | ${perMinute.toLocaleString("en")} | ${perDay.toLocaleString("en")} |`)
    }
  })
})
