/** Tests the console in Chromium, as an operator uses it, and its protection against other pages. */
import { assert } from "@effect/vitest"
import axe from "axe-core"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import type { Page } from "playwright-core"
import { onTestFinished } from "vitest"
import {
  aliceToken,
  callAdmin,
  callApi,
  describeConsole,
  openConsole,
  openSignedIn,
  readToken,
  signIn
} from "../support/ConsolePage.ts"
import { adminToken } from "../support/Process.ts"

const waitForText = (page: Page, text: string | RegExp) => page.getByText(text).first().waitFor()

const untilUsed = (page: Page, used: number) =>
  page.locator(`meter[aria-label="Used of the minute"][value="${used}"]`).waitFor()

/** Asserts that the page breaks no rule of axe and is not wider than its window: light and wide, dark and narrow. */
const assertAccessible = async (page: Page): Promise<void> => {
  await page.evaluate(axe.source)
  for (const [colorScheme, width] of [["dark", 360], ["light", 1280]] as const) {
    await page.emulateMedia({ colorScheme })
    await page.setViewportSize({ width, height: 800 })
    const violations = await page.evaluate<ReadonlyArray<string>>(
      `axe.run().then(({ violations }) => violations.map(({ id, nodes }) => id + ": " + nodes.map(({ html }) => html)))`
    )
    assert.deepStrictEqual(violations, [], colorScheme)
    assert.isAtMost(await page.evaluate<number>("document.documentElement.scrollWidth"), width)
  }
}

/** Returns the text of the element that has the focus. */
const focused = (page: Page) => page.evaluate<string>("document.activeElement?.innerText ?? ''")

describeConsole((test) => {
  test("issues, shows, changes, rotates and revokes a key, without accessibility violations", async (service) => {
    const { errors, origins, page } = await openConsole(service)
    await signIn(page, "adm_wrong")
    assert.match(await page.getByRole("alert").innerText(), /admin token/)
    await assertAccessible(page)
    await page.getByLabel("Admin token").fill("")
    await signIn(page)

    const name = `<img src=x onerror="document.title='owned'">`
    await page.getByRole("button", { name: "Issue key" }).click()
    const dialog = page.getByRole("dialog")
    await dialog.getByLabel("Name").fill(name)
    await dialog.getByLabel("Plan").selectOption("enterprise")
    await dialog.getByLabel("Limit per minute").fill("5")
    await dialog.getByLabel("Limit per day").fill("100")
    await assertAccessible(page)
    await dialog.getByRole("button", { name: "Issue key" }).click()
    await page.getByRole("dialog", { name: "New secret" }).waitFor()
    const secret = await dialog.getByLabel("Secret", { exact: true }).inputValue()
    assert.match(secret, /^psk_\w{38}$/)
    await dialog.getByRole("button", { name: "Done" }).click()
    await page.getByRole("link", { name }).click()
    await page.getByRole("heading", { name: `${name} active` }).waitFor()
    assert.strictEqual(await page.title(), "staging · Keys · Petstore console", "the markup is text")
    assert.notInclude(await page.content(), secret)
    await waitForText(page, "at most 0 a minute")

    assert.deepStrictEqual(await callApi(service, secret, 3), [200, 200, 200])
    await untilUsed(page, 3)
    const chart = page.getByRole("figure").filter({ hasText: "Last day" })
    await chart.locator(`[title$="3 allowed, 0 rejected, 0 banned"]`).waitFor({ state: "attached" })
    await waitForText(page, "Counted without Redis")

    assert.deepStrictEqual((await callApi(service, secret, 9)).slice(0, 3), [200, 200, 429])
    await waitForText(page, "Banned.")
    await page.getByRole("link", { name: "Keys" }).click()
    await page.getByLabel("state").selectOption("banned")
    await page.getByText("1 on this page").waitFor()
    await page.getByRole("link", { name }).click()
    await page.getByRole("button", { name: "Lift ban" }).click()
    await page.getByText("Banned.").waitFor({ state: "hidden" })
    // This service has no Redis.
    await page.getByRole("status").getByText("was lifted in the process that responded").waitFor()

    // The used requests stay used after the change.
    await page.getByRole("button", { name: "Change" }).click()
    await dialog.getByLabel("Name").fill("acme")
    await dialog.getByLabel("Plan").selectOption("pro")
    await dialog.getByRole("button", { name: "Save" }).click()
    await waitForText(page, "300 a minute, 10,000 a day")
    await untilUsed(page, 5)
    assert.deepStrictEqual(await callApi(service, secret, 1), [200])

    await page.getByRole("button", { name: "Rotate" }).click()
    await dialog.getByLabel("The current secret").selectOption("ends now")
    await dialog.getByRole("button", { name: "Rotate key" }).click()
    const rotated = await dialog.getByLabel("Secret", { exact: true }).inputValue()
    await dialog.getByRole("button", { name: "Done" }).click()
    assert.deepStrictEqual(await callApi(service, secret, 1), [401])
    assert.deepStrictEqual(await callApi(service, rotated, 1), [200])

    await page.getByRole("button", { name: "Revoke" }).click()
    await dialog.getByRole("button", { name: "Revoke key" }).click()
    await page.getByRole("heading", { name: "acme revoked" }).waitFor()
    await assertAccessible(page)
    assert.deepStrictEqual(await callApi(service, rotated, 1), [401])

    await page.getByRole("link", { name: "Audit log" }).click()
    // The page of the key, which this click leaves, shows actions too.
    await page.getByRole("heading", { name: "Audit log", exact: true }).waitFor()
    await waitForText(page, "enterprise → pro")
    const actions = await page.locator(".action").allInnerTexts()
    assert.deepStrictEqual(actions.slice(0, 6), ["revoke", "rotate", "update", "unban", "ban", "issue"])
    const row = page.getByRole("row").filter({ hasText: "enterprise → pro" })
    await row.filter({ hasText: "per minute 5 → 300" }).getByRole("link", { name: "acme" }).waitFor()
    await assertAccessible(page)

    await page.getByRole("button", { name: "Sign out" }).click()
    await page.locator("input:focus").waitFor()
    await page.goBack()
    await page.getByLabel("Admin token").waitFor()
    assert.deepStrictEqual([...origins], [service.management])
    assert.deepStrictEqual(errors, [])
  })

  test("leaves a new secret neither by Escape nor by Back nor by a reload", async (service) => {
    const { id, key: former } = await callAdmin(service, "POST", "/keys", { name: "held", plan: "free" })
    const page = await openSignedIn(service)
    // Within the page, only the fragment changes.
    await page.goto(`${service.management}/#/keys/${id}`)
    const tryToLeave = async (title: string): Promise<void> => {
      await page.keyboard.press("Escape")
      await page.keyboard.press("Escape")
      await page.evaluate("new Promise((resolve) => { addEventListener('hashchange', resolve); history.back() })")
      assert.include(page.url(), id)
      // The reload waits for the response to the question.
      const [question] = await Promise.all([
        page.waitForEvent("dialog"),
        page.evaluate("setTimeout(() => location.reload())")
      ])
      assert.strictEqual(question.type(), "beforeunload")
      await question.dismiss()
      await page.getByRole("dialog", { name: title }).waitFor()
    }
    await page.getByRole("button", { name: "Rotate" }).click()
    const response = Promise.withResolvers<void>()
    await page.route("**/rotate", (route) => response.promise.then(() => route.continue()))
    await page.getByRole("button", { name: "Rotate key" }).click()
    await tryToLeave("Rotate key")
    response.resolve()
    const secret = await page.getByLabel("Secret", { exact: true }).inputValue()
    await tryToLeave("New secret")
    // By default the former secret works for an hour.
    for (const each of [secret, former]) assert.deepStrictEqual(await callApi(service, each, 1), [200])
    await page.getByRole("button", { name: "Done" }).click()
    await page.getByText(/stops working in \d+ min/).waitFor()
    await page.getByRole("button", { name: "End former secrets" }).click()
    await page.getByRole("dialog").getByRole("button", { name: "End former secrets" }).click()
    await page.getByText("stops working in").waitFor({ state: "hidden" })
    assert.deepStrictEqual(await callApi(service, former, 1), [401])
    assert.deepStrictEqual(await callApi(service, secret, 1), [200])
    await page.goBack()
    await page.getByRole("heading", { name: "Keys", exact: true }).waitFor()
  })

  test("shows what another operator changed meanwhile, changes nothing, and keeps the input", async (service) => {
    const { id, key } = await callAdmin(service, "POST", "/keys", { name: "\u202eemca", plan: "free" })
    const page = await openSignedIn(service, `#/keys/${id}`, aliceToken)
    assert.strictEqual(await page.locator("h1 bdi").textContent(), "\u202eemca")
    const dialog = page.getByRole("dialog")
    /** Changes the plan while a dialog is open. The page reads the key every 3 seconds, which must not help. */
    const changePlan = async (plan: string): Promise<void> => {
      await callAdmin(service, "PATCH", `/keys/${id}`, { plan })
      await page.locator(".properties", { hasText: plan }).waitFor({ timeout: 10_000 })
    }
    await page.getByRole("button", { name: "Change" }).click()
    await dialog.getByLabel("Name").fill("typed")
    await changePlan("pro")
    await dialog.getByRole("button", { name: "Save" }).click()
    await dialog.getByText("plan free → pro, per minute 60 → 300").waitFor()
    assert.strictEqual(await dialog.getByLabel("Name").inputValue(), "typed")
    assert.strictEqual(await dialog.getByLabel("Plan").inputValue(), "pro")
    await dialog.getByRole("button", { name: "Save" }).click()
    await page.getByRole("heading", { name: "typed active" }).waitFor()
    assert.containsSubset(await callAdmin(service, "GET", `/keys/${id}`), { name: "typed", plan: "pro", version: 3 })

    let plan = "pro"
    for (const button of ["Rotate", "Disable", "Revoke"]) {
      await page.getByRole("button", { name: button }).click()
      const before = plan
      plan = plan === "pro" ? "business" : "pro"
      await changePlan(plan)
      await dialog.getByRole("button", { name: `${button} key` }).click()
      await dialog.getByText(`nothing was saved: plan ${before} → ${plan}`).waitFor()
      await page.getByRole("button", { name: "Cancel" }).click()
    }
    assert.deepStrictEqual(await callApi(service, key, 1), [200])
    await page.getByRole("link", { name: "Audit log" }).click()
    await page.getByLabel("Operator").fill("alice")
    await page.keyboard.press("Enter")
    await page.getByText("1 on this page").waitFor()
    await page.getByRole("row").nth(1).filter({ hasText: "\u202eemca → typed" }).waitFor()
    await page.getByLabel("action").selectOption("revoke")
    await page.getByText("0 on this page").waitFor()
  })

  test("finds the key of a secret at a URL that has only the hash", async (service) => {
    const { key } = await callAdmin(service, "POST", "/keys", { name: "leaked", plan: "free" })
    await callAdmin(service, "POST", "/keys", { name: "other", plan: "free" })
    const page = await openSignedIn(service)
    const urls: Array<string> = []
    page.on("request", (request) => urls.push(request.url()))
    const search = async (text: string): Promise<void> => {
      await page.getByLabel("Search keys").fill(text)
      await page.keyboard.press("Enter")
    }
    const other = page.getByRole("link", { name: "other" })
    const found = page.getByText("the secret works")
    await other.waitFor()
    await search(`curl -H 'Authorization: Bearer ${key}'`)
    await found.waitFor()
    await other.waitFor({ state: "hidden" })
    assert.strictEqual(await page.getByLabel("Search keys").inputValue(), "")
    assert.notInclude([page.url(), ...urls].join(" "), key)
    await page.getByRole("button", { name: "Refresh" }).click()
    await found.waitFor()
    await page.getByRole("link", { name: "Keys" }).click()
    await other.waitFor()
    await found.waitFor({ state: "hidden" })
    await page.goBack()
    await found.waitFor()
    await page.goBack()
    await other.waitFor()
    await search(key.slice(0, -1))
    await page.getByRole("alert").getByText("no whole secret").waitFor()
    await search("leaked")
    await page.getByText("1 on this page").waitFor()
    await page.getByRole("alert").waitFor({ state: "hidden" })
  })

  test("shows the operator, the environment, and only the actions that the token allows", async (service) => {
    const { id, key } = await callAdmin(service, "POST", "/keys", {
      name: "banned",
      plan: "enterprise",
      limits: { perMinute: 1, perDay: 1 }
    })
    await callApi(service, key, 9)
    const page = await openSignedIn(service, `#/keys/${id}`, readToken)
    await page.getByText("Banned.").waitFor()
    const buttons = async () => (await page.getByRole("button").allInnerTexts()).toSorted()
    assert.deepStrictEqual(await buttons(), ["Refresh", "Sign out"])
    assert.match(await page.getByRole("banner").innerText(), /staging[^]*board \(read only\)/)
    await page.getByRole("link", { name: "Keys" }).click()
    await page.getByRole("link", { name: "banned" }).waitFor()
    assert.deepStrictEqual(await buttons(), ["Refresh", "Search", "Sign out"])
  })

  test("disables and enables a key, and sorts keys by their requests", async (service) => {
    const { id, key } = await callAdmin(service, "POST", "/keys", {
      name: "busy",
      plan: "enterprise",
      limits: { perMinute: 100, perDay: 100 }
    })
    assert.include(await callApi(service, key, 150), 429)
    const page = await openSignedIn(service, `#/keys/${id}`)
    for (const [action, state, status] of [["Disable", "disabled", 401], ["Enable", "active", 429]] as const) {
      await page.getByRole("button", { name: action }).click()
      await page.getByRole("dialog").getByRole("button", { name: `${action} key` }).click()
      await page.getByRole("heading", { name: `busy ${state}` }).waitFor()
      assert.deepStrictEqual(await callApi(service, key, 1), [status])
    }
    await page.getByRole("link", { name: "Keys" }).click()
    for (const order of ["most rejected, last hour", "most allowed, last day"]) {
      await page.getByLabel("order").selectOption(order)
      await page.getByRole("row").nth(1).filter({ hasText: /busy.*enterprise10\d5\d/ }).waitFor()
      await page.getByText(`requests in the ${order.split(", ")[1]}`).waitFor()
    }
    await assertAccessible(page)
    // The list of keys has another URL.
    await page.getByLabel("Search keys").fill("busy")
    await page.keyboard.press("Enter")
    await page.getByText("1 on this page").waitFor()
    assert.include(page.url(), "#/keys?search=busy")
  })

  test("shows every column in a narrow window, and covers nothing with messages", async (service) => {
    const { id } = await callAdmin(service, "POST", "/keys", { name: "narrow", plan: "pro" })
    const page = await openSignedIn(service, "#/keys?search=narrow")
    await page.setViewportSize({ width: 390, height: 800 })
    for (const text of ["pro", "300 a minute, 10,000 a day", "never"]) {
      await page.getByRole("table").getByText(text, { exact: true }).waitFor()
    }
    await page.getByRole("link", { name: "narrow" }).click()
    await page.getByRole("button", { name: "Change" }).click()
    await page.getByRole("button", { name: "Save" }).click()
    const message = await page.getByText("The key was changed.").boundingBox()
    const heading = await page.getByRole("heading", { name: "narrow" }).boundingBox()
    assert.isAtMost((message?.y ?? 0) + (message?.height ?? 0), heading?.y ?? 0)
    await page.goto(`${service.management}/#/audit?key=${id}`)
    await page.getByRole("table").getByText("127.0.0.1").waitFor()
  })

  test("keeps the filter and the position of a list in its URL", async (service) => {
    for (let i = 0; i < 25; i++) {
      await callAdmin(service, "POST", "/keys", { name: `page ${i}`, plan: "business" })
    }
    const page = await openSignedIn(service)
    await page.getByLabel("Search keys").fill("page")
    await page.getByLabel("plan").selectOption("business")
    // The list before the filter has a next page too.
    await page.locator(`a[href*="plan=business"]`, { hasText: "Next page" }).click()
    const last = page.getByRole("link", { name: "page 0", exact: true })
    await last.waitFor()
    await page.reload()
    await signIn(page)
    await last.waitFor()
    assert.strictEqual(await page.getByLabel("Search keys").inputValue(), "page")
    await last.click()
    await page.getByRole("heading", { name: "page 0 active" }).waitFor()
    await page.goBack()
    await last.waitFor()
    await page.getByRole("link", { name: "First page" }).click()
    await page.getByRole("row").nth(1).filter({ hasText: "page 24" }).waitFor()
    await page.getByLabel("order").selectOption("oldest first")
    await page.getByRole("row").nth(1).filter({ hasText: "page 0" }).waitFor()
  })

  test("issues one key if the operator tries again after a lost response", async (service) => {
    const page = await openSignedIn(service)
    await page.getByRole("button", { name: "Issue key" }).click()
    const dialog = page.getByRole("dialog")
    await dialog.getByLabel("Name").fill("once")
    await page.route("**/admin/keys", async (route) => {
      await route.fetch()
      await route.abort()
    }, { times: 1 })
    await dialog.getByRole("button", { name: "Issue key" }).click()
    await dialog.getByRole("alert").waitFor()
    await dialog.getByRole("button", { name: "Issue key" }).click()
    const message = await dialog.getByRole("alert").filter({ hasText: "key_" }).innerText()
    const issued = await callAdmin(service, "GET", "/keys?search=once")
    assert.strictEqual(issued.length, 1)
    assert.include(message, issued[0].id)
  })

  test("works with the keyboard alone, and returns the focus when a dialog closes", async (service) => {
    const page = await openSignedIn(service)
    /** Presses Tab until an element with this text has the focus, and then Enter. */
    const choose = async (text: string): Promise<void> => {
      for (let i = 0; i < 60 && await focused(page) !== text; i++) await page.keyboard.press("Tab")
      assert.strictEqual(await focused(page), text)
      await page.keyboard.press("Enter")
    }
    await choose("Issue key")
    await page.getByRole("dialog").waitFor()
    await page.keyboard.press("Escape")
    await page.getByRole("dialog").waitFor({ state: "hidden" })
    await choose("Issue key")
    await page.keyboard.type("keyboard")
    await page.keyboard.press("Enter")
    await page.getByRole("dialog", { name: "New secret" }).waitFor()
    await choose("Done")
    await page.locator("button:focus", { hasText: "Issue key" }).waitFor()
    await page.keyboard.press("Tab")
    await page.keyboard.type("keyboard")
    await page.keyboard.press("Enter")
    await page.getByText("1 on this page").waitFor()
    await choose("keyboard")
    await page.getByRole("heading", { name: "keyboard active" }).waitFor()
    await choose("Revoke")
    await page.locator("button:focus", { hasText: "Cancel" }).waitFor()
    await choose("Revoke key")
    await page.getByRole("heading", { name: "keyboard revoked" }).waitFor()
  })

  test("keeps the token only in memory, and forgets it at a reload", async (service) => {
    const page = await openSignedIn(service)
    for (const path of ["/", "/console.js", "/console.css", "/admin/keys", "/metrics", "/nothing"]) {
      const headers = { authorization: `Bearer ${adminToken}` }
      assert.isNull((await fetch(service.management + path, { headers })).headers.get("set-cookie"), path)
    }
    assert.deepStrictEqual(await page.context().storageState({ indexedDB: true }), { cookies: [], origins: [] })
    assert.strictEqual(await page.evaluate("sessionStorage.length + localStorage.length"), 0)
    assert.notInclude(page.url() + await page.content(), adminToken)
    await page.reload()
    assert.strictEqual(await page.getByLabel("Admin token").inputValue(), "")
  })

  test("rejects calls, frames and host names of other origins", async (service) => {
    const { management } = service
    const foreignPage = createServer((_request, response) => {
      response.setHeader("content-type", "text/html").end(`<!doctype html><title>foreign</title>
        <iframe name="framed" src="${management}/"></iframe>
        <form method="post" enctype="text/plain" action="${management}/admin/keys" target="posted">
          <input name='{"name":"forged","plan":"free","x":"' value='"}'>
        </form>
        <iframe name="posted"></iframe>`)
    }).listen(0, "127.0.0.1")
    onTestFinished(() => void foreignPage.close())
    // The operator is signed in, in another tab of the same browser.
    const page = await (await openSignedIn(service)).context().newPage()
    await page.goto(`http://127.0.0.1:${(foreignPage.address() as AddressInfo).port}`)
    const posted = page.waitForResponse((response) => response.url() === `${management}/admin/keys`)
    await page.evaluate("document.forms[0].submit()")
    assert.strictEqual((await posted).status(), 401)
    // Chromium shows its own error in the frame.
    assert.match(page.frame("framed")?.url() ?? "", /^chrome-error:/)

    const call = (options: object) =>
      page.evaluate<string>(
        `fetch("${management}/admin/keys", ${JSON.stringify(options)})
          .then(({ type, status }) => type + " " + status, String)`
      )
    const forged = { method: "POST", body: JSON.stringify({ name: "forged", plan: "free" }) }
    const headers = { "authorization": `Bearer ${adminToken}`, "content-type": "application/json" }
    assert.match(await call({ credentials: "include" }), /^TypeError/)
    // Even with the token, the preflight request fails.
    assert.match(await call({ ...forged, headers }), /^TypeError/)
    assert.strictEqual(await call({ ...forged, mode: "no-cors", credentials: "include" }), "opaque 0")
    assert.deepStrictEqual(await callAdmin(service, "GET", "/keys?search=forged"), [])

    for (const path of ["/", "/console.js", "/admin/keys"]) {
      const rebound = await page.goto(`http://rebound.example:${new URL(management).port}${path}`)
      assert.strictEqual(rebound?.status(), 421)
    }
  })
})
