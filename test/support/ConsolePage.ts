/** A running service, its console in Chromium, and an operator who uses it. */
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import type { Page } from "playwright-core"
import { launch } from "./Browser.ts"
import { dataDirectory } from "./Databases.ts"
import { adminToken, type Running, send, sendAdmin, serve, start } from "./Process.ts"
import { browser } from "./setup.ts"

/** The tokens of the operator alice, and of the operator board, who can only read. */
export const tokens = { alice: "a".repeat(32), board: "b".repeat(32) } as const

/** One service and one browser for all tests, and the address of a page of another origin, which embeds the console. */
const startConsole = Effect.gen(function*() {
  const ADMIN_TOKENS = `alice:${tokens.alice},board:read:${tokens.board}`
  const service = yield* start({ DATA_DIR: yield* dataDirectory, ADMIN_TOKENS, ENVIRONMENT: "staging" })
  const frame = `<!doctype html><title>foreign</title><iframe name="framed" src="${service.management}/"></iframe>`
  const foreign = yield* serve((_request, response) => response.setHeader("content-type", "text/html").end(frame))
  return { ...service, foreign, browser: yield* launch }
})
type ConsoleService = Effect.Success<typeof startConsole>
const ConsoleService = Context.Service<ConsoleService>("test/support/ConsoleService")

type Test = (title: string, run: (service: ConsoleService) => Promise<void>) => void

/** Defines tests, with one service and one browser for all. */
export const describeConsole = (define: (test: Test) => void) =>
  describe.skipIf(browser === undefined)("The console", () => {
    layer(Layer.effect(ConsoleService, startConsole), { excludeTestServices: true })((it) =>
      define((title, run) =>
        it.effect(title, () => Effect.flatMap(ConsoleService, (service) => Effect.promise(() => run(service))))
      )
    )
  })

export const callAdmin = async (service: Running, method: string, path: string, body?: unknown) =>
  (await Effect.runPromise(sendAdmin(service, method, path, body))).body

/** Sends `count` requests with a key, one after the other. Returns the statuses. */
export const callApi = ({ address }: Running, secret: string, count = 1): Promise<ReadonlyArray<number>> =>
  Effect.runPromise(
    Effect.replicateEffect(Effect.map(send(`${address}/v1/pets`, secret), ({ status }) => status), count)
  )

/** Opens the sign-in page in front of a view. `errors` has those of the page, except responses of 4xx. */
export const openConsole = async (service: ConsoleService, view = "") => {
  const page = await (await service.browser.newContext()).newPage()
  const urls: Array<string> = []
  const errors: Array<string> = []
  page.on("request", (request) => urls.push(request.url()))
  page.on("pageerror", (error) => errors.push(error.message))
  page.on("console", (message) => {
    const isFailure = ["error", "warning"].includes(message.type())
    if (isFailure && !/status of 4\d\d/.test(message.text())) errors.push(message.text())
  })
  await page.goto(`${service.management}/${view}`)
  await page.getByLabel("Admin token").waitFor()
  return { ...operate(page, service), urls, errors }
}

export const openSignedIn = async (service: ConsoleService, view?: string, token?: string) => {
  const operator = await openConsole(service, view)
  await operator.signIn(token)
  await operator.page.getByRole("navigation", { name: "Views" }).waitFor()
  return operator
}

/** What an operator does on a page, and what the operator waits for. */
const actionsOn = (page: Page, service: Running) => {
  const dialog = page.getByRole("dialog")
  const heading = (name: string) => page.getByRole("heading", { name, exact: true }).waitFor()
  return {
    press: (name: string) => page.getByRole("button", { name }).click(),
    /** Waits for the rows of lists first: a link below them moves, and a press that began before does nothing then. */
    follow: (name: string) =>
      page.locator("[aria-busy=true]").first().waitFor({ state: "detached" })
        .then(() => page.getByRole("link", { name, exact: true }).click()),
    select: async (options: Readonly<Record<string, string>>): Promise<void> => {
      for (const [label, option] of Object.entries(options)) await page.getByLabel(label).selectOption(option)
    },
    fill: async ({ Plan, ...texts }: Readonly<Record<string, string>>): Promise<void> => {
      if (Plan !== undefined) await dialog.getByLabel("Plan").selectOption(Plan)
      for (const [label, text] of Object.entries(texts)) await dialog.getByLabel(label).fill(text)
    },
    confirm: (name: string) => dialog.getByRole("button", { name }).click(),
    /** Types into the field that has the focus, and presses Enter. */
    enter: (text: string) => page.keyboard.type(text).then(() => page.keyboard.press("Enter")),
    search: (text: string) => page.getByLabel("Search keys").fill(text).then(() => page.keyboard.press("Enter")),
    sees: (text: string | RegExp) => page.getByText(text).first().waitFor(),
    seesLink: (name: string) => page.getByRole("link", { name, exact: true }).waitFor(),
    seesAlert: (text: string) => page.getByRole("alert").getByText(text).waitFor(),
    misses: (text: string) => page.getByText(text).waitFor({ state: "hidden" }),
    missesLink: (name: string) => page.getByRole("link", { name, exact: true }).waitFor({ state: "hidden" }),
    heading,
    dialog: (name: string) => page.getByRole("dialog", { name }).waitFor(),
    firstRow: (text: string | RegExp) => page.getByRole("row").nth(1).filter({ hasText: text }).waitFor(),
    focus: (selector: string) => page.locator(`${selector}:focus`).waitFor(),
    focusOn: (text: string) => page.locator("button:focus", { hasText: text }).waitFor(),
    key: (name: string) => page.keyboard.press(name),
    /** Presses Tab until an element with this text has the focus, and then Enter. */
    choose: async (text: string): Promise<void> => {
      const focused = () => page.evaluate<string>("document.activeElement?.innerText ?? ''")
      for (let i = 0; i < 60 && await focused() !== text; i++) await page.keyboard.press("Tab")
      assert.strictEqual(await focused(), text)
      await page.keyboard.press("Enter")
    },
    back: (name: string) => page.goBack().then(() => heading(name)),
    /** Waits for the number of requests that the page of a key shows as used. */
    used: (count: number) => page.locator(`meter[aria-label="Used this minute"][value="${count}"]`).waitFor(),
    requests: async ([secret, ...expected]: readonly [secret: string, ...statuses: ReadonlyArray<number>]) =>
      assert.deepStrictEqual(await callApi(service, secret, expected.length), expected)
  }
}
type Actions = ReturnType<typeof actionsOn>

type Row = { readonly [Name in keyof Actions]?: Parameters<Actions[Name]>[0] }

const operate = (page: Page, service: Running) => {
  const actions: Readonly<Record<string, (input: never) => Promise<unknown>>> = actionsOn(page, service)
  const does = async (...rows: ReadonlyArray<Row>): Promise<void> => {
    for (const [name, input] of rows.flatMap((row) => Object.entries(row))) await actions[name]?.(input as never)
  }
  return {
    page,
    does,
    /** Signs in with the keyboard alone. */
    signIn: (token = adminToken) => does({ focus: "input", enter: token }),
    readSecret: () => page.getByRole("dialog").getByLabel("Secret", { exact: true }).inputValue()
  }
}
