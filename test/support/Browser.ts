import { Effect } from "effect"
import { type Browser, chromium } from "playwright-core"
import { browser } from "./setup.ts"

/** Chromium, until the scope closes. */
export const launch = Effect.acquireRelease(
  Effect.promise(() => chromium.launch({ executablePath: browser ?? "" })),
  (running: Browser) => Effect.promise(() => running.close())
)
