/** Tests that the files and test titles that the documentation names exist. */
import { assert, describe, it } from "@effect/vitest"
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { dirname, join } from "node:path"

const root = new URL("..", import.meta.url).pathname
const tests = readdirSync(join(root, "test"), { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".test.ts"))
  .map((name) => readFileSync(join(root, "test", name), "utf8"))

const documents = [
  "README.md",
  "SECURITY.md",
  "CONTRIBUTING.md",
  ...readdirSync(join(root, "docs"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".md"))
    .map((name) => `docs/${name}`)
]

/** The files that a text names, each with the places where it may be. */
const filesOf = (document: string, text: string): ReadonlyArray<ReadonlyArray<string>> => [
  // The text gives a name without a folder only beside the full path.
  ...[...text.matchAll(/`((?:[\w.-]+\/)+[\w.-]+\.(?:ts|md|yaml))`/g)].map(([, name = ""]) => [
    join(root, name),
    join(root, "src", name)
  ]),
  ...[...text.matchAll(/\]\(([\w./-]+)\)/g)].map(([, link = ""]) => [join(root, dirname(document), link)])
]

describe("The documentation", () => {
  it("names files, which this suite finds", () => {
    const files = documents.flatMap((document) => filesOf(document, readFileSync(join(root, document), "utf8")))
    assert.isAbove(files.length, 40)
  })
})

for (const document of documents) {
  const text = readFileSync(join(root, document), "utf8")

  describe(`The document ${document}`, () => {
    it("names only files that exist", () => {
      for (const places of filesOf(document, text)) assert.isTrue(places.some((place) => existsSync(place)), places[0])
    })

    it("quotes only titles of tests that exist", () => {
      for (const [, title = ""] of text.matchAll(/\.test\.ts`: \*([^*]+)\*/g)) {
        assert.isTrue(tests.some((source) => source.includes(title)), title)
      }
    })
  })
}
