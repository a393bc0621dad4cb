/** Tests the explorer page in headless Chromium. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { type Browser, chromium, type Page } from "playwright-core"
import { temporaryDirectory } from "../../support/Harness.ts"
import { start, until } from "../../support/Process.ts"
import { browser } from "../../support/setup.ts"

const launch = Effect.acquireRelease(
  Effect.promise(() =>
    chromium.launch({
      executablePath: browser ?? "",
      args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    })
  ),
  (running: Browser) => Effect.promise(() => running.close())
)

/** Sends the default request of an operation from the page. Returns the status and the body that the page shows. */
const tryOut = async (page: Page, operation: string) => {
  const block = page.locator(`#operations-pets-${operation}`)
  if (await block.locator(".opblock-body").count() === 0) await block.locator(".opblock-summary-control").click()
  const begin = block.locator("button.try-out__btn")
  if (await begin.innerText() === "Try it out") await begin.click()
  const responded = page.waitForResponse((response) => response.url().includes("/v1/"))
  await block.locator("button.execute").click()
  await responded
  const shown = block.locator(".live-responses-table .response")
  await shown.waitFor()
  return {
    status: await shown.locator(".response-col_status").innerText(),
    body: await shown.locator(".highlight-code").first().innerText()
  }
}

describe.skipIf(browser === undefined)("/docs", () => {
  it.live("loads from no other host, and sends requests with and without a key", () =>
    Effect.gen(function*() {
      const service = yield* start({ DATA_DIR: yield* temporaryDirectory })
      yield* until(() => service.stdout().includes("curl"))
      const key = /psk_\w+/.exec(service.stdout())?.[0] ?? ""
      const running = yield* launch
      yield* Effect.promise(async () => {
        await fetch(`${service.address}/v1/pets`, {
          method: "POST",
          body: `{"name":"Rex of the page","categoryId":1}`,
          headers: { "authorization": `Bearer ${key}`, "content-type": "application/json" }
        })
        const page = await running.newPage()
        const hosts = new Set<string>()
        const errors: Array<string> = []
        page.on("request", (request) => {
          if (!request.url().startsWith("data:")) hosts.add(new URL(request.url()).origin)
        })
        page.on("pageerror", (error) => errors.push(error.message))
        page.on("console", (message) => {
          // Chromium logs a 401 as an error. The test provokes one 401 below.
          if (message.type() === "error" && !message.text().includes("401")) errors.push(message.text())
        })
        await page.goto(`${service.address}/docs`)
        await page.locator("#operations-pets-listPets").waitFor()
        assert.strictEqual(await page.title(), "Petstore Documentation")
        assert.strictEqual(await page.locator(".opblock").count(), 3)
        assert.strictEqual(await page.locator(".opblock-deprecated").count(), 1)

        const rejected = await tryOut(page, "listPets")
        assert.include(rejected.status, "401")
        assert.include(rejected.body, "missing_api_key")

        await page.locator("button.authorize").first().click()
        await page.locator(".auth-container input").fill(key)
        await page.locator(".auth-btn-wrapper button.authorize").click()
        await page.locator(".auth-btn-wrapper button.btn-done").click()
        const listed = await tryOut(page, "listPets")
        assert.include(listed.status, "200")
        assert.include(listed.body, "Rex of the page")

        assert.deepStrictEqual([...hosts], [service.address])
        assert.deepStrictEqual(errors, [])
      })
    }), 90_000)
})
