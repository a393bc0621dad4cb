/** Finds variables of the environment whose names are mistyped names of settings. */

export interface Mistyped {
  readonly name: string
  /** The setting that was probably meant. */
  readonly meant: string
}

/**
 * For names of settings up to this length, only swapped letters count as a typo, because other typos make common
 * words: `POST` from `HOST`.
 */
const maxShortName = 5

const swapAt = (name: string, index: number): string =>
  `${name.slice(0, index)}${name[index + 1] ?? ""}${name[index] ?? ""}${name.slice(index + 2)}`

/** Whether `longer` is `shorter` with one more character. */
const hasOneMore = (longer: string, shorter: string): boolean =>
  longer.length === shorter.length + 1 &&
  Array.from(longer).some((_, index) => longer.slice(0, index) + longer.slice(index + 1) === shorter)

/**
 * Whether one typo turns `setting` into `name`: a swap of neighbours, a missing, additional or wrong character, or
 * another case.
 */
const isTypo = (name: string, setting: string): boolean => {
  if (Array.from(setting).some((_, index) => swapAt(setting, index) === name)) return true
  if (setting.length <= maxShortName) return false
  // The name in another case, such as `database_url`. Not for short names: `host` is a common name.
  if (name.toUpperCase() === setting) return true
  const differing = Array.from(setting).filter((character, index) => character !== name[index])
  return hasOneMore(name, setting) || hasOneMore(setting, name) ||
    (name.length === setting.length && differing.length === 1)
}

/** Returns the variables whose names are probably typos of a setting that is not set. */
export const findMistyped = (variables: Iterable<string>, settings: ReadonlyArray<string>): ReadonlyArray<Mistyped> => {
  const names = new Set(variables)
  const unset = settings.filter((setting) => !names.has(setting))
  return Array.from(names).filter((name) => !settings.includes(name)).flatMap((name) => {
    const meant = unset.find((setting) => isTypo(name, setting))
    return meant === undefined ? [] : [{ name, meant }]
  })
}
