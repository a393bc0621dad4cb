/** Prints a text once, or redraws it on the terminal every few seconds (`--watch`). */
import { Clock, Console, DateTime, Duration, Effect, Option, Terminal } from "effect"
import { baseUrl } from "./AdminConnection.ts"
import { describeFailure } from "./CommandFailure.ts"
import { output } from "./Style.ts"

/** Control sequences of ECMA-48 and DEC: the cursor is hidden, and long lines are cut off. */
const begin = "\x1b[?25l\x1b[?7l\x1b[2J"
const end = "\x1b[?7h\x1b[?25h"
const home = "\x1b[H"
const eraseLine = "\x1b[K"
const eraseBelow = "\x1b[J"

/** Returns the sequence that draws the lines over those of the last frame, so that the screen does not flicker. */
const frameOf = (lines: ReadonlyArray<string>): string =>
  home + lines.map((line) => line + eraseLine).join("\n") + "\n" + eraseBelow

/** The lines above the text: the time, and an empty line. The cursor needs one more below it. */
export const extraLines = 3

/** Redraws the text until the fiber is interrupted. An error after the first text is drawn instead of the time. */
const redraw = Effect.fnUntraced(function*<E, R>(text: Effect.Effect<string, E, R>, seconds: number) {
  const terminal = yield* Terminal.Terminal
  const { style } = yield* output
  const url = yield* baseUrl
  let body = yield* text
  let error: string | undefined
  yield* terminal.display(begin)
  while (true) {
    const now = DateTime.makeUnsafe(yield* Clock.currentTimeMillis)
    const time = DateTime.formatIso(now).slice("2030-12-31T".length, "2030-12-31T00:00:00".length)
    const status = error === undefined
      ? style.dim(`${url} every ${seconds} s, ${time} UTC. Ctrl-C ends.`)
      : style.red(`${time} UTC: ${error}`)
    const { rows } = yield* output
    yield* terminal.display(frameOf([status, "", ...body.split("\n").slice(0, Math.max(1, rows - extraLines))]))
    yield* Effect.sleep(Duration.seconds(seconds))
    error = undefined
    body = yield* text.pipe(Effect.catch((failure) =>
      Effect.map(describeFailure(failure), (message) => {
        error = message
        return body
      })
    ))
  }
})

/** Prints the text, or redraws it every `interval` seconds if there is an interval. */
export const printOrWatch = <E, R>(text: Effect.Effect<string, E, R>, interval: Option.Option<number>) =>
  Option.match(interval, {
    onNone: () => Effect.flatMap(text, (printed) => Console.log(printed)),
    onSome: (seconds) =>
      Effect.ensuring(
        Effect.asVoid(redraw(text, seconds)),
        Effect.flatMap(Terminal.Terminal, (terminal) => Effect.ignore(terminal.display(end)))
      )
  })
