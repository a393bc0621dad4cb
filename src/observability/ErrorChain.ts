import { Predicate } from "effect"

const causeOf = (error: object): unknown => "cause" in error ? error.cause : undefined

/**
 * Describes an error and its causes in one line. If `describe` returns a text for an error, this text replaces the
 * error's message and all of its causes. Without any message, the result is an empty text.
 */
export const describeChain = (
  failure: unknown,
  describe: (error: object) => string | undefined = () => undefined
): string => {
  const messages: Array<string> = []
  const seen = new Set<unknown>()
  let error = failure
  while (Predicate.hasProperty(error, "message") && !seen.has(error)) {
    seen.add(error)
    const known = describe(error)
    const message = known ?? String(error.message)
    if (!messages.some((outer) => outer.includes(message))) messages.push(message)
    error = known === undefined ? causeOf(error) : undefined
  }
  return messages.filter((message) => message !== "").join(": ").replaceAll(/\s+/g, " ")
}
