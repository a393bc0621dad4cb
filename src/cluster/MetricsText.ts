/** Merges the metrics of several processes, in the text format of Prometheus. */

/** The samples of one metric: the name with its labels, and the value. */
interface Family {
  readonly type: string
  /** The lines before the samples: `# HELP` and `# TYPE`. */
  readonly head: ReadonlyArray<string>
  readonly samples: Map<string, number>
}

/** Gauges whose sum means nothing: states, versions, times and delays. Their maximum counts. */
const isMaximum = (name: string): boolean =>
  /^petstore_rate_limit_fallback$|_info$|_start_time_seconds$|_lag_seconds$/.test(name)

const parse = (text: string): ReadonlyMap<string, Family> => {
  const families = new Map<string, Family>()
  let help: ReadonlyArray<string> = []
  let samples: Family["samples"] | undefined
  for (const line of text.split("\n")) {
    const [, name, type] = /^# TYPE (\S+) (\S+)/.exec(line) ?? []
    if (line.startsWith("# HELP ")) {
      help = [line]
    } else if (name !== undefined && type !== undefined) {
      samples = new Map()
      families.set(name, { type, head: [...help, line], samples })
      help = []
    } else if (line !== "") {
      // A label can contain spaces, and the value cannot.
      const space = line.lastIndexOf(" ")
      samples?.set(line.slice(0, space), Number(line.slice(space + 1)))
    }
  }
  return families
}

const render = (families: Iterable<Family>): string =>
  Array.from(
    families,
    ({ head, samples }) =>
      [...head, ...Array.from(samples, ([sample, value]) => `${sample} ${value}`)].map((line) => `${line}\n`).join("")
  ).join("")

/** Sums all counters, histograms and gauges. Some gauges become their maximum. */
export const merge = (texts: ReadonlyArray<string>): string => {
  const merged = new Map<string, Family>()
  for (const [name, family] of texts.flatMap((text) => [...parse(text)])) {
    const before = merged.get(name)
    if (before === undefined) {
      merged.set(name, family)
      continue
    }
    for (const [sample, value] of family.samples) {
      const other = before.samples.get(sample) ?? 0
      before.samples.set(sample, isMaximum(name) ? Math.max(other, value) : other + value)
    }
  }
  return render(merged.values())
}

/** Returns the part of `text` that still counts after its process has ended: all metrics except gauges. */
export const withoutGauges = (text: string): string =>
  render(parse(text).values().filter(({ type }) => type !== "gauge"))
