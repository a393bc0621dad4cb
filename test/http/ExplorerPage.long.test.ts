import { assert, describe, it, vi } from "@effect/vitest"
import { Effect } from "effect"
import type { Page } from "playwright-core"
import { launch } from "../support/ConsolePage.ts"
import { firstKey, send, start } from "../support/Process.ts"
import { browser } from "../support/setup.ts"
import { temporaryDirectory } from "../support/Temporary.ts"

/** Sends the prepared request of the operation at `index` in the page. Returns the response that the page shows. */
const tryOut = async (page: Page, index: number): Promise<string> => {
  await page.getByRole("button", { name: /Test Request/ }).nth(index).click()
  const responded = page.waitForResponse((response) => response.url().includes("/v1/"))
  await page.getByRole("button", { name: /^Send/ }).first().click()
  const text = (await (await responded).text()).replaceAll(/\s+/g, "")
  // Until the page shows the response, it shows the one before.
  const body = page.getByRole("dialog").locator(".cm-content").last()
  await vi.waitUntil(async () => (await body.innerText()).replaceAll(/\s+/g, "") === text, { timeout: 30_000 })
  const shown = `${await page.getByRole("dialog").getByText(/^\d{3} [A-Z]/).first().innerText()} ${text}`
  await page.keyboard.press("Escape")
  await page.getByRole("dialog").waitFor({ state: "hidden" })
  return shown
}

describe.skipIf(browser === undefined)("/docs", () => {
  it.live("loads nothing from other hosts, and sends requests and shows their exact responses", () =>
    Effect.gen(function*() {
      const service = yield* start({ DATA_DIR: yield* temporaryDirectory })
      const key = yield* firstKey(service)
      const pet = { name: "Rex of the page", categoryId: JSON.rawJSON("9223372036854775807"), status: "available" }
      yield* send(`${service.address}/v1/pets`, key, "POST", pet)
      const running = yield* launch
      yield* Effect.promise(async () => {
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
        await page.goto(service.address)
        await page.getByRole("heading", { name: "Create a pet" }).waitFor()
        assert.match(await tryOut(page, 0), /^401 .*"code":"missing_api_key"/)
        await page.getByPlaceholder("Token").first().fill(key)
        assert.match(await tryOut(page, 0), /^200 .*"name":"Rexofthepage","categoryId":9223372036854775807,/)
        assert.match(await tryOut(page, 1), /^201 .*"id":2,"name":"Rex","categoryId":3,/)
        assert.match(await tryOut(page, 1), /^201 .*"id":3,/)

        assert.deepStrictEqual([...hosts], [service.address])
        assert.deepStrictEqual(errors, [])
      })
    }))
})
