/** Tests that the rules of style find the sentences that they forbid, and no others. */
import { assert, describe, it } from "@effect/vitest"
import { proseOfComments, proseOfMarkdown, proseOfMessages } from "./Prose.ts"
import { findingsIn } from "./Style.ts"

const forbidden = [
  "Only who has no server loads one.",
  "The counts in memory are the ones that count.",
  "What is wrong in a setting is said in one line, before anything is made or migrated.",
  "Who closes his side behind a request is still answered.",
  "Whether who comes now, or has waited for too long, is to be told to come again.",
  "What a process admitted meanwhile it brings to Redis before it asks there about that caller again.",
  "An effect of what the last answer said of the limits, once there was one.",
  "Every valid key may get every animal.",
  "The service refuses a body that is too large.",
  "The limiter admits the request.",
  "The pool remembers the last statement.",
  "Whoever calls the API needs a key.",
  "The key is to be replaced.",
  "Nobody sees the secret again.",
  "The process that is started first reads the settings and then connects to the database before it listens on the ports that the settings name for clients and for operators.",
  "The exchange ends when the socket is closed.",
  "The batch is under way until the statement ends.",
  "The patience of a request is one second.",
  "That which is not decoded is left to HttpApi."
]

/** The same, as we write it. */
const allowed = [
  "Load PGlite only when DATABASE_URL is not set.",
  "Memory is authoritative; the database copy is for restarts.",
  "Invalid settings are reported in one line before any file or table is created.",
  "A client that half-closes after its request still gets the response.",
  "Decide whether to reject with 503.",
  "The fast path may already have charged this request.",
  "On recovery, a process first merges its local counts for a caller into Redis, then asks Redis about that caller.",
  "The limits from the most recent response; `None` before the first response.",
  "Every valid key may get every pet.",
  "The service rejects a body that is too large.",
  "The limiter allows the request.",
  "The pool caches the last statement.",
  "Each client of the API needs a key.",
  "Replace the key.",
  "The secret is shown once.",
  "The first process reads the settings and connects to the database. Then it listens.",
  "The request ends when the socket is closed.",
  "The statement is in flight.",
  "A request waits for at most one second.",
  "The fast path leaves everything that it cannot decode to HttpApi."
]

describe("The rules of style", () => {
  it("find each sentence that they forbid", () => {
    assert.deepStrictEqual(forbidden.filter((sentence) => findingsIn(sentence).length === 0), [])
  })

  it("find nothing in the sentences that replace them", () => {
    assert.deepStrictEqual(allowed.flatMap(findingsIn), [])
  })

  it("find a word that is repeated at the end of a line", () => {
    assert.strictEqual(findingsIn("The process reads the the settings.")[0]?.reason, `"the" is repeated`)
  })
})

const textOf = (passages: ReadonlyArray<{ readonly text: string }>) => passages.map(({ text }) => text.trim())

describe("The prose of a document", () => {
  it("is split at blank lines, items, headings and cells", () => {
    const page = "# One two\n\nA line,\nand another.\n\n- First.\n- Second.\n\n| a | b |\n|---|---|\n| c | d. |\n"
    assert.sameMembers(textOf(proseOfMarkdown(page)), [
      "One two",
      "A line, and another.",
      "First.",
      "Second.",
      "a",
      "b",
      "c",
      "d."
    ])
  })

  it("has no code, quotations and links", () => {
    const page = "Set `answer` to \"refused\".\n\n> an animal\n\n```sh\nanswer\n```\n\nSee [errors](answer.md).\n"
    assert.deepStrictEqual(textOf(proseOfMarkdown(page)), ["Set Xxxxxxxx to Xxxxxxxxx.", "See  errors            ."])
  })

  it("keeps the position of each passage", () => {
    const page = "# Heading\n\nOne.\n\n- Two.\n"
    for (const { start, text } of proseOfMarkdown(page)) assert.isTrue(page.startsWith(text, start), text)
  })
})

describe("The prose of comments", () => {
  it("has the docstrings and lines of comments, and no code", () => {
    const source =
      `/**\n * Reads a file,\n * and more.\n */\nconst a = "// no" // after\n// One line\n// and the next.\nconst b = \`/* no */\`\n`
    assert.deepStrictEqual(textOf(proseOfComments(source)), [
      "Reads a file,    and more.",
      "after",
      "One line    and the next."
    ])
  })
})

describe("The prose of messages", () => {
  it("has string literals and templates of at least four words, the text of pages, and no SQL", () => {
    const source =
      "f(\"The limit is used up.\", `Retry in ${n} seconds, please.`, \"two words\", sql`SELECT 1 FROM a b`)"
    assert.deepStrictEqual(textOf(proseOfMessages(source)), ["The limit is used up.", "Retry in Xxxx seconds, please."])
    const page = "const page = <p class=\"note\">Keys end after a year.</p>"
    assert.deepStrictEqual(textOf(proseOfMessages(page, "page.tsx")), ["Keys end after a year."])
  })
})
