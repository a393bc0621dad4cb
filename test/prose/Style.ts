/** Our rules of style, as checks of write-good: terms with one name only, subjects, and the length of sentences. */
import writeGood, { type Check, type Suggestion } from "write-good"

export const maxWords = 25

/** Terms that have another name here, and that name. */
const terms: ReadonlyArray<readonly [forbidden: RegExp, use: string]> = [
  [/animals?/, "pet"],
  [/answer(?:s|ed|ing|able)?|unanswered/, "response, respond, reply"],
  [/exchanges?/, "request, response"],
  [/refus(?:e|es|ed|ing|al|als)/, "reject, rejection"],
  [/admit(?:s|ted|ting)?/, "allow, allowed"],
  [
    /(?<!\b(?:client|caller|operator|user|attacker|everyone)s? )who|whoever|whom|anybody|nobody|somebody/,
    "client, caller, operator"
  ],
  [/he|him|his|she|her/, "it, its"],
  [/remember(?:s|ed|ing)?|forgets?|forgot|forgotten|forgetting/, "cache, evict, keep"],
  [/(?:send|sends|sent|sending|ask|asks|asked|asking) again/, "retry"],
  [/patience|patient/, "timeout"],
  [/under way/, "in flight"],
  [/(?<!\bin )additions?/, "insert, create"],
  [/nth/, "index"],
  [/unparsed/, "parser error"],
  [/short way/, "fast path"],
  [/sweeps?|sweeping|swept/, "delete expired rows"],
  [/settles?|settled|settling/, "reconcile, merge"],
  [/tightest/, "restrictive"],
  [/freshness/, "lease, staleness"],
  [/unwritten|written behind/, "pending"],
  [/(?:is|are|was|were) to(?= [a-z])/, "must, can, should"],
  [/(?:is|are) due/, "must, or a time"],
  [/may come/, "can"],
  [/wants?|wanted/, "needs, can, must"],
  [/that which|are the ones that/, "a noun"]
]

const findAll = (text: string, pattern: RegExp) =>
  [...text.matchAll(pattern)].map(({ 0: match, index }) => ({ index, offset: match.length }))

const termChecks = terms.map(([forbidden, use]): [string, Check] => [
  use + forbidden.source,
  {
    // Between hyphens and in a name such as `who.ts`, a word is part of another one.
    fn: (text) => findAll(text, new RegExp(String.raw`(?<![\w.-])(?:${forbidden.source})(?![\w-]|\.\w)`, "gi")),
    explanation: `has another name here: ${use}`
  }
])

const segmenter = new Intl.Segmenter("en", { granularity: "sentence" })

/** Returns the sentences of a text. An item of a list of clauses with semicolons is part of its sentence. */
export const sentencesOf = (text: string) =>
  [...segmenter.segment(text)].map(({ index, segment }) => ({
    index,
    sentence: segment.trimEnd(),
    words: segment.split(/\s+/).filter((word) => /[\p{L}\p{N}]/u.test(word)).length
  }))

const checks: Readonly<Record<string, Check>> = {
  ...Object.fromEntries(termChecks),
  length: {
    fn: (text) =>
      sentencesOf(text).filter(({ words }) => words > maxWords).map(({ index, sentence }) => ({
        index,
        offset: sentence.length
      })),
    explanation: `has more than ${maxWords} words`
  },
  subject: {
    fn: (text) =>
      sentencesOf(text).flatMap(({ index, sentence, words }) => {
        const [subject] =
          /^(?:Only )?(?:What|Who|Whoever|Nobody|That (?=is|are|was|has|can|may|must))\b/.exec(sentence) ?? []
        // "What to do." is a label.
        return subject === undefined || words < 4 || !sentence.endsWith(".") ? [] : [{ index, offset: subject.length }]
      }),
    explanation: "is no subject: name the thing"
  }
}

/** Returns what our style forbids in a text, and words that occur twice in a row. */
export const findingsIn = (text: string): ReadonlyArray<Suggestion> => [
  ...writeGood(text, { checks }),
  ...writeGood(text, {
    weasel: false,
    so: false,
    thereIs: false,
    passive: false,
    adverb: false,
    tooWordy: false,
    cliches: false
  }).filter(({ index }) => !/^Xx*\b/.test(text.slice(index)))
]
