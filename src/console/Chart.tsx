/** A chart with its text alternative: a table of the same numbers. */
import { useEffect, useRef, useState } from "preact/hooks"
import type uPlot from "uplot"
import { formatCompact, formatNumber } from "./Format.ts"

/** The values of one line, or of one part of stacked bars. `color` names a colour of the style sheet. */
export interface Series {
  readonly name: string
  readonly color: string
  readonly values: ReadonlyArray<number | undefined>
}

interface Data {
  /** The instants of the values, in Unix seconds. */
  readonly times: ReadonlyArray<number>
  readonly series: ReadonlyArray<Series>
}

interface Properties extends Data {
  readonly title: string
  readonly unit: string
  readonly kind: "bars" | "lines"
  format?(value: number): string
}

const height = 180

/**
 * Returns the data for the canvas. The first series is drawn last, above the others. Bars are stacked: each has the sum
 * of its value and those of the series before.
 */
const toPlotData = ({ kind, series, times }: Pick<Properties, "kind" | "series" | "times">): uPlot.AlignedData => {
  if (kind === "lines") {
    return [[...times], ...series.map(({ values }) => values.map((value) => value ?? null)).toReversed()]
  }
  const sums = times.map(() => 0)
  return [
    [...times],
    ...series.map(({ values }) => values.map((value, index) => sums[index] = (sums[index] ?? 0) + (value ?? 0)))
      .toReversed()
  ]
}

/** Returns the options of the canvas, with the colours of the current style. */
const optionsOf = (
  { format = formatCompact, kind, series, times }: Pick<Properties, "format" | "kind" | "series" | "times">,
  width: number,
  bars: uPlot.Series.BarsPathBuilderFactory | undefined
): uPlot.Options => {
  const style = getComputedStyle(document.documentElement)
  const colorOf = (name: string): string => style.getPropertyValue(`--${name}`)
  const axis = {
    stroke: colorOf("muted"),
    font: `11px ${style.fontFamily}`,
    grid: { stroke: colorOf("line"), width: 1 },
    ticks: { show: false }
  }
  const paths = bars?.({ size: [0.7, 24], align: 1 })
  return {
    width,
    height,
    legend: { show: false },
    cursor: { show: false },
    select: { show: false, left: 0, top: 0, width: 0, height: 0 },
    padding: [8, 8, 0, 0],
    scales: {
      // A bar begins at its instant, so the last one needs the room of one interval.
      x: { range: (_plot, min, max) => [min, kind === "bars" ? max + max - (times.at(-2) ?? max) : max] },
      y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.1 : 1] }
    },
    axes: [
      { ...axis, grid: { show: false }, size: 28, space: 72, values: (_plot, ticks) => ticks.map(timeFormatOf(kind)) },
      { ...axis, size: 48, space: 32, values: (_plot, values) => values.map((value) => format(value)) }
    ],
    series: [
      {},
      ...series.toReversed().map(({ color }) => ({
        stroke: colorOf(color),
        width: kind === "bars" ? 0 : 1.5,
        // An interval without a neighbour is a point.
        points: kind === "bars" ? { show: false } : { size: 5, fill: colorOf(color) },
        ...kind === "bars" && { fill: colorOf(color), ...paths !== undefined && { paths } }
      }))
    ]
  }
}

const minutes = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" })
const seconds = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" })

/** Bars are minutes or hours. Lines have a point every few seconds. */
const timeFormatOf = (kind: Properties["kind"]) => (at: number): string =>
  (kind === "bars" ? minutes : seconds).format(at * 1_000)

const sumOf = ({ values }: Series): number => values.reduce<number>((sum, value) => sum + (value ?? 0), 0)

/** Draws on a canvas with uPlot, which is loaded when the first chart appears. */
const Plot = (properties: Pick<Properties, "format" | "kind" | "series" | "times">) => {
  const container = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot>(undefined)
  const [isLoaded, setIsLoaded] = useState(false)
  const latest = useRef(properties)
  latest.current = properties

  useEffect(() => {
    let isOver = false
    const element = container.current
    const darkness = matchMedia("(prefers-color-scheme: dark)")
    const resized = new ResizeObserver(() => {
      if (element !== null) plot.current?.setSize({ width: element.clientWidth, height })
    })
    let draw = (): void => undefined
    const load = async (): Promise<void> => {
      const { default: Library } = await import("uplot")
      if (isOver || element === null) return
      draw = () => {
        plot.current?.destroy()
        const options = optionsOf(latest.current, element.clientWidth, Library.paths.bars)
        plot.current = new Library(options, toPlotData(latest.current), element)
      }
      draw()
      darkness.addEventListener("change", draw)
      resized.observe(element)
      setIsLoaded(true)
    }
    void load()
    return () => {
      isOver = true
      darkness.removeEventListener("change", draw)
      resized.disconnect()
      plot.current?.destroy()
    }
  }, [])
  useEffect(() => plot.current?.setData(toPlotData(latest.current)), [properties.times, properties.series, isLoaded])

  return <div class="plot" ref={container} aria-hidden="true" />
}

/** The numbers of the chart, latest first, without intervals in which all are zero. */
const DataTable = ({ format = formatNumber, kind, series, times, title }: Omit<Properties, "unit">) => {
  const formatTime = timeFormatOf(kind)
  const rows = times.map((at, index) => ({ at, values: series.map(({ values }) => values[index]) }))
    .filter(({ values }) => values.some((value) => value !== undefined && value > 0)).toReversed()
  return (
    <table>
      <caption class="sr-only">{title}</caption>
      <thead>
        <tr>
          <th scope="col">Time</th>
          {series.map(({ name }) => <th key={name} scope="col" class="number">{name}</th>)}
        </tr>
      </thead>
      <tbody>
        {rows.map(({ at, values }) => (
          <tr key={at}>
            <th scope="row">{formatTime(at)}</th>
            {values.map((value) => <td class="number">{value === undefined ? "" : format(value)}</td>)}
          </tr>
        ))}
        {rows.length === 0 && (
          <tr>
            <td class="empty" colSpan={series.length + 1}>No requests.</td>
          </tr>
        )}
      </tbody>
    </table>
  )
}

export const Chart = (properties: Properties) => {
  const { format = formatNumber, kind, series, title, unit } = properties
  const [hasTable, setHasTable] = useState(false)
  const valueOf = (each: Series): string =>
    kind === "bars" ? formatNumber(sumOf(each)) : formatValue(each.values.at(-1), format)
  return (
    <figure class="card chart">
      <figcaption>
        <strong>{title}</strong> <span class="muted">{unit}</span>
        <ul class="legend">
          {series.map((each) => (
            <li key={each.name}>
              <span class="swatch" style={{ background: `var(--${each.color})` }} />
              {each.name} <strong>{valueOf(each)}</strong>
            </li>
          ))}
        </ul>
      </figcaption>
      <Plot {...properties} />
      <details onToggle={({ currentTarget }) => setHasTable(currentTarget.open)}>
        <summary>Numbers of “{title}”</summary>
        {hasTable && <DataTable {...properties} />}
      </details>
    </figure>
  )
}

const formatValue = (value: number | undefined, format: (value: number) => string): string =>
  value === undefined ? "–" : format(value)
