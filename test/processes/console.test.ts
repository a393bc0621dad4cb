/** Tests the console in Chromium, on a service with PostgreSQL and Redis, as an operator uses it. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Page } from "playwright-core"
import { launch } from "../support/Chromium.ts"
import { callAdmin, isProgramMissing, openConsole, openSignedIn, signIn, startService } from "../support/ConsolePage.ts"

/** Sends `count` requests with a key, one after the other. Returns the statuses. */
const callApi = async (address: string, secret: string, count: number): Promise<ReadonlyArray<number>> => {
  const statuses: Array<number> = []
  for (let i = 0; i < count; i++) {
    const response = await fetch(`${address}/v1/pets`, { headers: { authorization: `Bearer ${secret}` } })
    await response.text()
    statuses.push(response.status)
  }
  return statuses
}

/** Waits until a predicate on the text of the page holds. */
const waitForText = (page: Page, text: string | RegExp) => page.getByText(text).first().waitFor()

const usedOfMinute = (page: Page) => page.getByRole("meter", { name: "Used of the minute" })

const untilUsed = (page: Page, used: number) =>
  page.locator(`[role=meter][aria-label="Used of the minute"][aria-valuenow="${used}"]`).waitFor()

describe.skipIf(isProgramMissing)("The console", () => {
  it.live(
    "issues a key, shows its usage and its ban, and changes, unbans, rotates and revokes it",
    () =>
      Effect.gen(function*() {
        const { address, management } = yield* startService
        const running = yield* launch()
        yield* Effect.promise(async () => {
          const { errors, origins, page } = await openConsole(running, management)
          await signIn(page, "adm_wrong")
          await page.getByRole("alert").waitFor()
          assert.match(await page.getByRole("alert").innerText(), /admin token/)
          await page.getByLabel("Admin token").fill("")
          await signIn(page)
          await waitForText(page, "There is no key yet.")

          // A name with markup is text.
          const name = `<img src=x onerror="document.title='owned'">`
          await page.getByRole("button", { name: "Issue key" }).click()
          const dialog = page.getByRole("dialog")
          await dialog.getByLabel("Name").fill(name)
          await dialog.getByLabel("Plan").selectOption("enterprise")
          await dialog.getByLabel("Limit per minute").fill("5")
          await dialog.getByLabel("Limit per day").fill("100")
          await dialog.getByRole("button", { name: "Issue key" }).click()
          await page.getByRole("dialog", { name: "Key issued" }).waitFor()
          const secret = await dialog.getByLabel("Secret", { exact: true }).inputValue()
          assert.match(secret, /^psk_\w{38}$/)
          await dialog.getByRole("button", { name: "Done" }).click()
          await page.getByRole("link", { name }).click()
          await page.getByRole("heading", { name: new RegExp("^<img src=x") }).waitFor()
          assert.strictEqual(await page.title(), "Keys · Petstore console")
          assert.notInclude(await page.content(), secret)

          assert.deepStrictEqual(await callApi(address, secret, 3), [200, 200, 200])
          await untilUsed(page, 3)
          await page.getByText("Numbers of “Last hour”").click()
          const hour = page.getByRole("table", { name: "Last hour" })
          await hour.getByRole("cell", { name: "3", exact: true }).waitFor()

          const statuses = await callApi(address, secret, 9)
          assert.deepStrictEqual(statuses.slice(0, 3), [200, 200, 429])
          await waitForText(page, "Banned.")
          await page.getByRole("link", { name: "Keys" }).last().click()
          await page.getByRole("row", { name: /banned/ }).waitFor()
          await page.getByRole("link", { name }).click()
          await page.getByRole("button", { name: "Lift ban" }).click()
          await page.getByText("Banned.").waitFor({ state: "hidden" })
          await page.getByRole("status").getByText("was lifted").waitFor()

          // The used requests stay used after the change.
          await page.getByRole("button", { name: "Change" }).click()
          await dialog.getByLabel("Name").fill("acme")
          await dialog.getByLabel("Plan").selectOption("pro")
          await dialog.getByRole("button", { name: "Save" }).click()
          await waitForText(page, "300 a minute, 10,000 a day")
          await untilUsed(page, 5)
          assert.strictEqual(await usedOfMinute(page).getAttribute("aria-valuemax"), "300")
          assert.deepStrictEqual(await callApi(address, secret, 1), [200])

          await page.getByRole("button", { name: "Rotate" }).click()
          await dialog.getByRole("button", { name: "Rotate key" }).click()
          await page.getByRole("dialog", { name: "Key rotated" }).waitFor()
          const rotated = await dialog.getByLabel("Secret", { exact: true }).inputValue()
          // Escape does not close the only view of the secret.
          await page.keyboard.press("Escape")
          await page.keyboard.press("Escape")
          await dialog.getByRole("button", { name: "Done" }).click()
          assert.deepStrictEqual([await callApi(address, secret, 1), await callApi(address, rotated, 1)], [[401], [
            200
          ]])

          // The former secret finds its key, and the URL does not contain it.
          await page.getByRole("link", { name: "Keys" }).last().click()
          await page.getByLabel("Search keys").fill(`Bearer ${secret}`)
          await waitForText(page, "the secret does not work")
          assert.notInclude(page.url(), secret)
          await page.getByRole("link", { name: "acme" }).click()

          await page.getByRole("button", { name: "Revoke" }).click()
          await dialog.getByRole("button", { name: "Revoke key" }).click()
          await page.getByRole("heading", { name: "acme revoked" }).waitFor()
          assert.deepStrictEqual(await callApi(address, rotated, 1), [401])

          await page.getByRole("link", { name: "Audit log" }).click()
          await waitForText(page, "enterprise → pro")
          const actions = await page.locator(".action").allInnerTexts()
          assert.deepStrictEqual(actions, ["revoke", "rotate", "update", "unban", "ban", "issue"])

          await page.getByRole("link", { name: "Overview" }).click()
          await page.getByRole("group").first().waitFor()
          for (const tile of [/^Database\s*responds/, /^Redis\s*responds/]) {
            await page.locator(".tile", { hasText: tile }).waitFor()
          }
          await page.getByRole("button", { name: "Sign out" }).click()
          await page.getByLabel("Admin token").waitFor()
          await page.goBack()
          await page.getByLabel("Admin token").waitFor()

          assert.deepStrictEqual([...origins], [management])
          assert.deepStrictEqual(errors, [])
        })
      }),
    120_000
  )

  it.live("does not overwrite the change of another operator, and shows it", () =>
    Effect.gen(function*() {
      const { management } = yield* startService
      const running = yield* launch()
      yield* Effect.promise(async () => {
        const { id } = await callAdmin(management, "POST", "/keys", { name: "acme", plan: "free" })
        const { page } = await openSignedIn(running, management)
        await page.getByRole("link", { name: "acme" }).click()
        await page.getByRole("button", { name: "Change" }).click()
        const dialog = page.getByRole("dialog")
        await callAdmin(management, "PATCH", `/keys/${id}`, { name: "acme of another operator" })
        await dialog.getByLabel("Plan").selectOption("business")
        await dialog.getByRole("button", { name: "Save" }).click()
        await dialog.getByRole("alert").getByText("nothing was saved").waitFor()
        assert.containsSubset(await callAdmin(management, "GET", `/keys/${id}`), { plan: "free", version: 2 })

        await dialog.getByRole("button", { name: "Show the current key" }).click()
        await dialog.getByText("Make your change again.").waitFor()
        assert.strictEqual(await dialog.getByLabel("Name").inputValue(), "acme of another operator")
        await dialog.getByLabel("Plan").selectOption("business")
        await dialog.getByRole("button", { name: "Save" }).click()
        await dialog.waitFor({ state: "hidden" })
        assert.containsSubset(await callAdmin(management, "GET", `/keys/${id}`), {
          name: "acme of another operator",
          plan: "business",
          version: 3
        })
      })
    }), 90_000)

  it.live(
    "works with the keyboard alone, and returns the focus to the button that opened a dialog",
    () =>
      Effect.gen(function*() {
        const { management } = yield* startService
        const running = yield* launch()
        yield* Effect.promise(async () => {
          const { page } = await openSignedIn(running, management)
          const focused = () => page.evaluate<string>("document.activeElement?.textContent ?? ''")
          const tabTo = async (text: string): Promise<void> => {
            for (let i = 0; i < 30 && await focused() !== text; i++) await page.keyboard.press("Tab")
            assert.strictEqual(await focused(), text)
          }
          await tabTo("Issue key")
          await page.keyboard.press("Enter")
          await page.getByRole("dialog").waitFor()
          await page.keyboard.press("Escape")
          await page.getByRole("dialog").waitFor({ state: "hidden" })
          assert.strictEqual(await focused(), "Issue key")

          await page.keyboard.press("Enter")
          await page.keyboard.type("acme")
          await page.keyboard.press("Enter")
          await page.getByRole("dialog", { name: "Key issued" }).waitFor()
          await tabTo("Done")
          await page.keyboard.press("Enter")
          await page.getByRole("link", { name: "acme" }).waitFor()
          await tabTo("acme")
          await page.keyboard.press("Enter")
          await page.getByRole("heading", { name: "acme active" }).waitFor()
          await tabTo("Revoke")
          await page.keyboard.press("Enter")
          assert.strictEqual(await focused(), "Cancel")
          await tabTo("Revoke key")
          await page.keyboard.press("Enter")
          await page.getByRole("heading", { name: "acme revoked" }).waitFor()
        })
      }),
    90_000
  )
})
