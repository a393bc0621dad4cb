/** Reads the text format of Prometheus, and what happened between two scrapes. */

/** One sample of `/metrics`. */
export interface Sample {
  readonly name: string
  readonly labels: ReadonlyMap<string, string>
  readonly value: number
}

/** The samples of one scrape, by name. */
export type Scrape = ReadonlyMap<string, ReadonlyArray<Sample>>

const line = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/
const label = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g

const unescape = (text: string): string => text.replaceAll(/\\(.)/g, (_, char: string) => char === "n" ? "\n" : char)

/** Parses `+Inf` as a number too. */
const toNumber = (text: string): number => Number(text.replace(/Inf$/, "Infinity"))

/** Parses the text of `/metrics`. It skips comments and lines that it does not understand. */
export const parse = (text: string): Scrape => {
  const scrape = new Map<string, Array<Sample>>()
  for (const each of text.split("\n")) {
    const [, name, labels = "", value = ""] = line.exec(each) ?? []
    if (name === undefined) continue
    const samples = scrape.get(name) ?? []
    if (samples.length === 0) scrape.set(name, samples)
    samples.push({
      name,
      labels: new Map([...labels.matchAll(label)].map(([, key = "", content = ""]) => [key, unescape(content)])),
      value: toNumber(value)
    })
  }
  return scrape
}

/** Returns the sum of the samples of a metric that `matches` selects, or `undefined` if there is none. */
export const sum = (
  scrape: Scrape,
  name: string,
  matches: (labels: Sample["labels"]) => boolean = () => true
): number | undefined => {
  const samples = (scrape.get(name) ?? []).filter(({ labels }) => matches(labels))
  return samples.length === 0 ? undefined : samples.reduce((total, { value }) => total + value, 0)
}

/** Returns the sums of a metric by the value of a label. */
export const sumsBy = (scrape: Scrape, name: string, labelName: string): ReadonlyMap<string, number> => {
  const sums = new Map<string, number>()
  for (const { labels, value } of scrape.get(name) ?? []) {
    const key = labels.get(labelName) ?? ""
    sums.set(key, (sums.get(key) ?? 0) + value)
  }
  return sums
}

/** Returns the growth of a counter. After a restart of the service the counter began at zero. */
export const growth = (before: number | undefined, after: number | undefined): number =>
  after === undefined ? 0 : after < (before ?? 0) ? after : after - (before ?? 0)

/**
 * Returns the quantile `q` of a histogram between two scrapes, or `undefined` without observations between them. Within
 * a bucket it interpolates, as `histogram_quantile` of Prometheus does.
 */
export const quantile = (before: Scrape, after: Scrape, name: string, q: number): number | undefined => {
  const old = sumsBy(before, `${name}_bucket`, "le")
  const buckets = [...sumsBy(after, `${name}_bucket`, "le")]
    .map(([le, count]) => ({ le: toNumber(le), count: growth(old.get(le), count) }))
    .toSorted((a, b) => a.le - b.le)
  const rank = q * (buckets.at(-1)?.count ?? 0)
  if (rank === 0) return undefined
  const index = buckets.findIndex(({ count }) => count >= rank)
  const bucket = buckets[index]
  const [low = 0, countBefore = 0] = [buckets[index - 1]?.le, buckets[index - 1]?.count]
  // Above the last bound, only the bound is known.
  if (bucket === undefined || bucket.le === Infinity) return low
  return low + (bucket.le - low) * ((rank - countBefore) / (bucket.count - countBefore))
}
