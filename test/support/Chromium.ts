import { Effect } from "effect"
import { type Browser, chromium } from "playwright-core"
import { browser } from "./setup.ts"

const options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]

export const launch = Effect.acquireRelease(
  Effect.promise(() => chromium.launch({ executablePath: browser ?? "", args: options })),
  (running: Browser) => Effect.promise(() => running.close())
)
