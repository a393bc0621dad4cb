/** A running service, and its console in Chromium. */
import { describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import type { Page } from "playwright-core"
import { launch } from "./Chromium.ts"
import { dataDirectory } from "./Databases.ts"
import { adminToken, type Running, send, sendAdmin, start } from "./Process.ts"
import { browser } from "./setup.ts"

/** The tokens of the operator alice, and of the operator board, who can only read. */
export const [aliceToken, readToken] = ["a".repeat(32), "b".repeat(32)] as const

/** One service and one browser for all tests. */
const startConsole = Effect.gen(function*() {
  const ADMIN_TOKENS = `alice:${aliceToken},board:read:${readToken}`
  const service = yield* start({ DATA_DIR: yield* dataDirectory, ADMIN_TOKENS, ENVIRONMENT: "staging" })
  // In this browser, another name leads to the service as well.
  return { ...service, browser: yield* launch("--host-resolver-rules=MAP rebound.example 127.0.0.1") }
})
type ConsoleService = Effect.Success<typeof startConsole>
const ConsoleService = Context.Service<ConsoleService>("test/support/ConsoleService")

/** Defines tests, with one service and one browser for all. */
export const describeConsole = (
  define: (test: (title: string, run: (service: ConsoleService) => Promise<void>) => void) => void
) =>
  describe.skipIf(browser === undefined)("The console", () => {
    layer(Layer.effect(ConsoleService, startConsole), { excludeTestServices: true })((it) =>
      define((title, run) =>
        it.effect(title, () => Effect.flatMap(ConsoleService, (service) => Effect.promise(() => run(service))), 300_000)
      )
    )
  })

/** Sends a request to the management API. Returns the parsed body. */
export const callAdmin = async (service: Running, method: string, path: string, body?: unknown) =>
  (await Effect.runPromise(sendAdmin(service, method, path, body))).body

/** Sends `count` requests with a key, one after the other. Returns the statuses. */
export const callApi = ({ address }: Running, secret: string, count: number): Promise<ReadonlyArray<number>> =>
  Effect.runPromise(
    Effect.replicateEffect(Effect.map(send(`${address}/v1/pets`, secret), ({ status }) => status), count)
  )

/** Opens the sign-in page in front of a view. `errors` has those of the page, except responses of 4xx. */
export const openConsole = async ({ browser: running, management }: ConsoleService, view = "") => {
  const page = await (await running.newContext()).newPage()
  const origins = new Set<string>()
  const errors: Array<string> = []
  page.on("request", (request) => origins.add(new URL(request.url()).origin))
  page.on("pageerror", (error) => errors.push(error.message))
  page.on("console", (message) => {
    const isFailure = ["error", "warning"].includes(message.type())
    if (isFailure && !/status of 4\d\d/.test(message.text())) errors.push(message.text())
  })
  await page.goto(`${management}/${view}`)
  await page.getByLabel("Admin token").waitFor()
  return { page, origins, errors }
}

/** Signs in with the keyboard alone. The field has the focus. */
export const signIn = async (page: Page, token = adminToken): Promise<void> => {
  await page.locator("input:focus").waitFor()
  await page.keyboard.type(token)
  await page.keyboard.press("Enter")
}

/** Opens a view and signs in. */
export const openSignedIn = async (service: ConsoleService, view?: string, token?: string) => {
  const { page } = await openConsole(service, view)
  await signIn(page, token)
  await page.getByRole("navigation", { name: "Views" }).waitFor()
  return page
}
