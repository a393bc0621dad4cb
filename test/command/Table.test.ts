/** Tests tables: their widths, their pages, and their lines in a pipe. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import type { Output } from "../../src/command/Style.ts"
import { type Column, formatTable } from "../../src/command/Table.ts"

interface Row {
  readonly id: string
  readonly name: string
}

const columns: ReadonlyArray<Column<Row>> = [
  { heading: "ID", cell: ({ id }) => id, fields: ({ id }) => [id] },
  { heading: "NAME", cell: ({ name }) => name, fields: ({ name }) => [name, String(name.length)], shrinks: true },
  { heading: "END", cell: () => "x", fields: () => ["x"], color: (_, { red }) => red }
]

const style = { bold: String, dim: String, red: (text: string) => `<${text}>`, green: String, yellow: String }

const format = (pages: ReadonlyArray<ReadonlyArray<Row>>, output: Partial<Output>) =>
  Effect.runSync(Stream.runCollect(formatTable(
    Stream.flatMap(Stream.fromIterable(pages), Stream.fromIterable),
    columns,
    { isTable: true, columns: 80, rows: 24, style, ...output },
    "No row."
  )))

describe("A table", () => {
  it("keeps the widths of its first page, cuts off longer names, and never an id", () => {
    const pages = [[{ id: "a", name: "first page" }], [{ id: "longer", name: "a longer name" }, { id: "b", name: "ü" }]]
    assert.deepStrictEqual(format(pages, {}), [
      "ID  NAME        END\na   first page  <x>\n",
      "longer  a longer …  <x>\nb   ü           <x>\n"
    ])
  })

  it("fits its width by cutting off names, by cells and not by characters", () => {
    const rows = [{ id: "a", name: "x".repeat(100) }, { id: "b", name: "名".repeat(20) }, {
      id: "c",
      name: "👨‍👩‍👧".repeat(9)
    }]
    const [text = ""] = format([rows], { columns: 20 })
    assert.strictEqual(
      text,
      "ID  NAME         END\na   xxxxxxxxxx…  <x>\nb   名名名名名…  <x>\nc   👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧…  <x>\n"
    )
  })

  it("replaces characters that move the cursor or reorder a line", () => {
    const names = ["\x1b[2J", "a\u202Eb", "c\u2066d", "e\u2028f", "g\u200Fh"]
    const [text = ""] = format([names.map((name) => ({ id: "a", name }))], {})
    for (const character of "\x1b\u202E\u2066\u2028\u200F") assert.notInclude(text, character)
    assert.include(text, "a   a\uFFFDb")
  })

  it("has no headings in a pipe, and lines with tabs in which nothing is cut off", () => {
    const name = "x".repeat(200)
    assert.deepStrictEqual(
      format([[{ id: "a", name }, { id: "b", name: "tab\tbed" }]], { isTable: false, columns: 20 }),
      [
        `a\t${name}\t200\tx\nb\ttab bed\t7\tx\n`
      ]
    )
  })

  it("says that it has no rows, and in a pipe has no text then", () => {
    assert.deepStrictEqual(format([], {}), ["No row.\n"])
    assert.deepStrictEqual(format([], { isTable: false }), [])
  })
})
