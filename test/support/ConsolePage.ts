/** A running service with PostgreSQL and Redis, and its console in Chromium. */
import { Effect } from "effect"
import type { Browser, BrowserContextOptions, Page } from "playwright-core"
import { temporaryDatabaseUrl } from "./Harness.ts"
import { start } from "./Process.ts"
import * as Redis from "./Redis.ts"
import { browser } from "./setup.ts"

/** Whether this machine lacks a program that the suites of the console need. */
export const isProgramMissing = process.env.TEST_DATABASE_URL === undefined || Redis.missing !== undefined ||
  browser === undefined

export const adminToken = "adm_0123456789abcdefghijklmnopqrstuvwxyz"

/** Starts a service on a database of its own and a Redis of its own. */
export const startService = Effect.gen(function*() {
  const DATABASE_URL = yield* temporaryDatabaseUrl
  const redis = yield* Redis.run
  yield* redis.start
  const service = yield* start({ DATABASE_URL, REDIS_URL: redis.url, ADMIN_TOKEN: adminToken })
  return { ...service, databaseUrl: DATABASE_URL }
})

/** Sends a request to the management API with the admin token. Returns the parsed body. */
export const callAdmin = async (management: string, method: string, path: string, body?: unknown) => {
  const response = await fetch(`${management}/admin${path}`, {
    method,
    headers: { "authorization": `Bearer ${adminToken}`, "content-type": "application/json" },
    ...body !== undefined && { body: JSON.stringify(body) }
  })
  const text = await response.text()
  return text === "" ? undefined : JSON.parse(text)
}

/** A page of the console. */
export interface ConsolePage {
  readonly page: Page
  /** The origins that the page sent requests to. */
  readonly origins: ReadonlySet<string>
  /** Errors and warnings of the page, except those that Chromium logs for a response of 4xx. */
  readonly errors: ReadonlyArray<string>
}

/** Opens the sign-in page. */
export const openConsole = async (
  browser: Browser,
  management: string,
  options: BrowserContextOptions = {}
): Promise<ConsolePage> => {
  const context = await browser.newContext(options)
  const page = await context.newPage()
  page.setDefaultTimeout(20_000)
  const origins = new Set<string>()
  const errors: Array<string> = []
  page.on("request", (request) => {
    if (!request.url().startsWith("data:")) origins.add(new URL(request.url()).origin)
  })
  page.on("pageerror", (error) => errors.push(error.message))
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type()) && !/status of 4\d\d/.test(message.text())) {
      errors.push(message.text())
    }
  })
  await page.goto(management)
  await page.getByLabel("Admin token").waitFor()
  return { page, origins, errors }
}

/** Signs in with the keyboard alone. The field has the focus. */
export const signIn = async (page: Page, token = adminToken): Promise<void> => {
  await page.keyboard.type(token)
  await page.keyboard.press("Enter")
}

/** Opens the console and signs in. */
export const openSignedIn = async (
  browser: Browser,
  management: string,
  options?: BrowserContextOptions
): Promise<ConsolePage> => {
  const opened = await openConsole(browser, management, options)
  await signIn(opened.page)
  await opened.page.getByRole("heading", { name: "Keys", exact: true }).waitFor()
  return opened
}
