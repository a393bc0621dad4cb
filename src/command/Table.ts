/** Prints rows as a table on a terminal, and as lines with tabs in a pipe. */
import { Stream } from "effect"
import { CliOutput } from "effect/cli"
import { fit, type Output, printable, type Style } from "./Style.ts"

export interface Column<Row> {
  readonly heading: string
  /** The cell of a table. */
  readonly cell: (row: Row) => string
  /** The color of the cell. */
  readonly color?: (row: Row, style: Style) => (text: string) => string
  /** The fields of a line in a pipe. They are exact: instants are ISO 8601 texts, and nothing is cut off. */
  readonly fields: (row: Row) => ReadonlyArray<string>
  /** The column gets narrower if the table does not fit. Its cells are cut off. */
  readonly shrinks?: boolean
}

const gap = "  "
const minShrunkWidth = 8

/** Chooses the widths by the first page, so that they stay the same on all pages. */
const widthsOf = <Row>(
  columns: ReadonlyArray<Column<Row>>,
  page: ReadonlyArray<Row>,
  { columns: available }: Output
) => {
  const natural = columns.map(({ cell, heading }) =>
    page.reduce((width, row) => Math.max(width, CliOutput.displayWidth(printable(cell(row)))), heading.length)
  )
  const total = natural.reduce((sum, width) => sum + width, gap.length * (columns.length - 1))
  const excess = Math.max(0, total - available)
  return natural.map((width, index) =>
    columns[index]?.shrinks === true ? Math.min(width, Math.max(minShrunkWidth, width - excess)) : width
  )
}

/** Formats the headings. */
const formatHeadings = <Row>(columns: ReadonlyArray<Column<Row>>, widths: ReadonlyArray<number>, { style }: Output) =>
  style.dim(columns.map(({ heading }, index) => fit(heading, widths[index] ?? 0)).join(gap).trimEnd()) + "\n"

const formatRow = <Row>(
  columns: ReadonlyArray<Column<Row>>,
  widths: ReadonlyArray<number>,
  { style }: Output,
  row: Row
): string =>
  columns.map(({ cell, color, shrinks }, index) => {
    const text = printable(cell(row))
    const width = widths[index] ?? 0
    // Cells that do not shrink are never cut off: an id must be whole. The last cell needs no spaces behind it.
    const fitted = shrinks !== true && CliOutput.displayWidth(text) > width ? text : fit(text, width)
    const padded = index === columns.length - 1 ? fitted.trimEnd() : fitted
    return color === undefined ? padded : color(row, style)(padded)
  }).join(gap) + "\n"

const formatLine = <Row>(columns: ReadonlyArray<Column<Row>>, row: Row): string =>
  columns.flatMap(({ fields }) => fields(row)).map((field) => field.replaceAll(/\p{Cc}/gu, " ")).join("\t") + "\n"

/** Formats rows page by page. It holds one page in memory. A table without rows is the line `empty`. */
export const formatTable = <Row, E, R>(
  rows: Stream.Stream<Row, E, R>,
  columns: ReadonlyArray<Column<Row>>,
  output: Output,
  empty: string
): Stream.Stream<string, E, R> =>
  output.isTable
    ? Stream.mapAccum(
      Stream.chunks(rows),
      (): ReadonlyArray<number> | undefined => undefined,
      (known, page) => {
        const widths = known ?? widthsOf(columns, page, output)
        const lines = page.map((row) => formatRow(columns, widths, output, row)).join("")
        return [widths, [known === undefined ? formatHeadings(columns, widths, output) + lines : lines]] as const
      },
      { onHalt: (widths) => widths === undefined ? [`${empty}\n`] : [] }
    )
    : Stream.map(Stream.chunks(rows), (page) => page.map((row) => formatLine(columns, row)).join(""))
