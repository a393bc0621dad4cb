/** Runs headless Chromium. */
import { Effect } from "effect"
import { type Browser, chromium } from "playwright-core"
import { browser } from "./setup.ts"

const options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]

/** Starts Chromium with these options beside those of all tests. The scope ends it. */
export const launch = (...more: ReadonlyArray<string>) =>
  Effect.acquireRelease(
    Effect.promise(() => chromium.launch({ executablePath: browser ?? "", args: [...options, ...more] })),
    (running: Browser) => Effect.promise(() => running.close())
  )
