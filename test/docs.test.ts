/** Tests that the files, headings and test titles that the documentation names exist. */
import { assert, describe, it } from "@effect/vitest"
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { anchorsOf, pagesBelow, readPage, root } from "./support/Documents.ts"

const tests = readdirSync(join(root, "test"), { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".test.ts"))
  .map((name) => readFileSync(join(root, "test", name), "utf8"))

const documents = [
  "README.md",
  "SECURITY.md",
  "CONTRIBUTING.md",
  ...pagesBelow("docs")
]

/** The files that a text names, each with the places where it may be. */
const filesOf = (document: string, text: string): ReadonlyArray<ReadonlyArray<string>> => [
  // The text gives a name without a folder only beside the full path.
  ...[...text.matchAll(/`((?:[\w.-]+\/)+[\w.-]+\.(?:ts|md|yaml))`/g)].map(([, name = ""]) => [
    join(root, name),
    join(root, "src", name)
  ]),
  ...linksOf(text).map(({ path }) => [path === "" ? join(root, document) : join(root, dirname(document), path)])
]

/** The links of a text to files and headings of the repository. */
const linksOf = (text: string): ReadonlyArray<{ readonly path: string; readonly anchor: string }> =>
  [...text.matchAll(/\]\(([\w./-]*)(?:#([^)]*))?\)/g)].map(([, path = "", anchor = ""]) => ({ path, anchor }))

describe("The documentation", () => {
  it("names files, which this suite finds", () => {
    const files = documents.flatMap((document) => filesOf(document, readPage(document)))
    assert.isAbove(files.length, 40)
  })
})

for (const document of documents) {
  const text = readPage(document)

  describe(`The document ${document}`, () => {
    it("names only files that exist", () => {
      for (const places of filesOf(document, text)) assert.isTrue(places.some((place) => existsSync(place)), places[0])
    })

    it("links only to headings that exist", () => {
      const anchors = linksOf(text).filter(({ anchor }) => anchor !== "")
      const missing = anchors.filter(({ anchor, path }) =>
        !anchorsOf(readPage(path === "" ? document : join(dirname(document), path))).includes(anchor)
      )
      assert.deepStrictEqual(missing, [])
    })

    it("quotes only titles of tests that exist", () => {
      for (const [, title = ""] of text.matchAll(/\.test\.ts`: \*([^*]+)\*/g)) {
        assert.isTrue(tests.some((source) => source.includes(title)), title)
      }
    })
  })
}

describe("The page of timeouts and limits", () => {
  const rows = [...readPage("docs/timeouts.md").matchAll(/ `([^`]+)` in `([^`]+)` \|$/gm)]

  it("has the values of the source", () => {
    assert.isAbove(rows.length, 50)
    for (const [, declaration = "", file = ""] of rows) assert.include(readPage(file), declaration, file)
  })
})
