/** Tests that the files, headings and test titles that the documentation names exist. */
import { assert, describe, it } from "@effect/vitest"
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { anchorsOf, documents, readPage, root } from "./support/Documents.ts"

const tests = readdirSync(join(root, "test"), { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".test.ts"))
  .map((name) => readFileSync(join(root, "test", name), "utf8"))

/** The pages of the repository on its host, as the published package links to them. */
const host = JSON.parse(readPage("package/package.json")).homepage.replace("#readme", "")

const withoutCode = (text: string): string => text.replaceAll(/^ *```.*?^ *```$/gms, "").replaceAll(/`[^`\n]*`/g, "``")

/** The targets of all links and images of a text. */
const linksOf = (text: string): ReadonlyArray<string> =>
  [...withoutCode(text).matchAll(/\]\(([^)]*)\)/g)].map(([, target = ""]) => target)

/** Returns the file and the heading of a link to the repository, or `undefined` for one to elsewhere. */
const targetOf = (document: string, link: string): { readonly path: string; readonly anchor: string } | undefined => {
  const path = link.replace(new RegExp(`^${host}/(?:tree|blob)/main/`), "/")
  if (/^https?:/.test(path)) return undefined
  const [file = "", anchor = ""] = path.split("#")
  if (file === "") return { path: document, anchor }
  return { path: file.startsWith("/") ? file.slice(1) : join(dirname(document), file), anchor }
}

/** Returns the links of a text that lead to no file or to no heading of a file. */
const brokenLinks = (document: string, text: string): ReadonlyArray<string> =>
  linksOf(text).filter((link) => {
    const target = targetOf(document, link)
    if (target === undefined) return false
    if (target.path !== document && !existsSync(join(root, target.path))) return true
    const linked = target.path === document ? text : target.anchor === "" ? "" : readPage(target.path)
    return target.anchor !== "" && !anchorsOf(linked).includes(target.anchor)
  })

/** The files that a text names in code, each with the places where it may be. */
const filesOf = (text: string): ReadonlyArray<ReadonlyArray<string>> =>
  // The text gives a name without a folder only beside the full path.
  [...text.matchAll(/`((?:[\w.-]+\/)+[\w.-]+\.(?:ts|md|yaml))`/g)].map(([, name = ""]) => [
    join(root, name),
    join(root, "src", name)
  ])

describe("The documentation", () => {
  it("names files and has links, which this suite finds", () => {
    const texts = documents.map(readPage)
    assert.isAbove(texts.flatMap(filesOf).length, 40)
    assert.isAbove(texts.flatMap(linksOf).length, 200)
  })

  it("names only scripts of npm that exist", () => {
    const { scripts } = JSON.parse(readPage("package.json"))
    const names = documents.flatMap((document) => [...readPage(document).matchAll(/npm run ([\w:]+)/g)])
    assert.isAbove(names.length, 20)
    for (const [, name = ""] of names) assert.property(scripts, name)
  })

  it("has an index that links to every page", () => {
    const pages = documents.filter((document) => document.startsWith("docs/") && document !== "docs/README.md")
    const linked = linksOf(readPage("docs/README.md")).map((link) => targetOf("docs/README.md", link)?.path)
    assert.includeMembers(linked, pages)
  })

  it("has links in the one form that this suite finds", () => {
    for (const document of documents) {
      assert.notMatch(withoutCode(readPage(document)), /<a |<img |^\[[^\]]+\]:|\]\[/m, document)
    }
  })
})

describe("A link", () => {
  it("is broken if its file or its heading does not exist", () => {
    const text =
      "# One\n[a](#one) [b](#two) [c](../README.md) [d](none.md) [e](../README.md#start) [f](../README.md#none)"
    assert.deepStrictEqual(brokenLinks("docs/new.md", text), ["#two", "none.md", "../README.md#none"])
    assert.deepStrictEqual(brokenLinks("README.md", `[a](${host}/tree/main/docs) [b](${host}/blob/main/none.md)`), [
      `${host}/blob/main/none.md`
    ])
  })
})

for (const document of documents) {
  const text = readPage(document)

  describe(`The document ${document}`, () => {
    it("names only files that exist", () => {
      for (const places of filesOf(text)) assert.isTrue(places.some((place) => existsSync(place)), places[0])
    })

    it("has no broken link", () => {
      assert.deepStrictEqual(brokenLinks(document, text), [])
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

describe("The pages for operators", () => {
  const sourcesBelow = (folder: string) =>
    readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(".ts"))
      .map((name) => readPage(join(folder, name))).join("")
  const namesIn = (
    source: string,
    pattern: RegExp
  ) => [...new Set([...source.matchAll(pattern)].map(([, name]) => name))]

  it("describe each table of the migrations", () => {
    const tables = namesIn(sourcesBelow("src/database/migrations"), /CREATE TABLE (\w+)/g)
    const rows = readPage("docs/database.md").split("\n").filter((line) => line.startsWith("| `")).join("\n")
    assert.isAbove(tables.length, 6)
    for (const table of tables) assert.include(rows, `\`${table}\``)
  })

  it("describe each task that writes or deletes in the background", () => {
    const source = sourcesBelow("src")
    const writes = namesIn(source, /WriteBehind\.make\(\{\s*table: "(\w+)"/g)
    const deletions = namesIn(source, /deleteExpired\(\{\s*table: "(\w+)"/g)
    assert.lengthOf(writes, 4)
    assert.isAbove(deletions.length, 4)
    const page = readPage("docs/monitoring.md")
    for (const table of writes) assert.include(page, `| \`write_${table}\` |`)
    const [row = ""] = /^\| `delete_…` \|.*$/m.exec(page) ?? []
    for (const table of deletions) assert.include(row, `\`${table}\``)
  })
})

describe("The README", () => {
  const readme = readPage("README.md")

  it("has at most 8 kB", () => {
    assert.isAtMost(Buffer.byteLength(readme), 8_000)
  })

  it("has each part that a new reader needs", () => {
    const parts = [
      /^# Petstore service\n\n[A-Z]/,
      /^\| \*\*Fast\*\* \|/m,
      /```sh\nnpm ci\nnpm start\n```/,
      /^## A tour of one minute$/m,
      /^```ts\n(?:.*\n){8,14}```$/m,
      /^```mermaid$/m,
      /^## Where to read on$/m,
      /\[MIT\]\(LICENSE\)/
    ]
    for (const part of parts) assert.match(readme, part)
  })

  it("has the ratios of the measurement in docs/performance.md", () => {
    const table = /## Default configuration.*?(?=\n##)/s.exec(readPage("docs/performance.md"))?.[0] ?? ""
    const ratios = [...table.matchAll(/^\| × (?:Bun|Go|Fastify).*$/gm)].map(([row]) =>
      row.split("|").slice(2, -1).map(Number)
    )
    assert.lengthOf(ratios, 3)
    const range = (column: number) => {
      const values = ratios.map((row) => row[column] ?? NaN)
      return `${Math.min(...values).toFixed(1)} to ${Math.max(...values).toFixed(1)} times`
    }
    assert.include(readme, `${range(0)} the lists and ${range(3)} the creates`)
    assert.include(readme, `Creates with an \`Idempotency-Key\`: ${range(4)}`)
  })

  it("has the time of a start in docs/performance.md", () => {
    assert.include(
      readPage("docs/performance.md"),
      "the service takes 0.9 s on PostgreSQL and 1.5 s on an embedded database"
    )
    assert.include(readme, "0.9 s after the start on PostgreSQL, and 1.5 s on an embedded database")
    assert.include(
      readPage("docs/decisions/embedded-database.md"),
      "first response comes 1.5 s after the start, instead of 0.9 s"
    )
  })
})
