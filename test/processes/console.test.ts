import { assert } from "@effect/vitest"
import axe from "axe-core"
import type { Page } from "playwright-core"
import { callAdmin, callApi, describeConsole, openConsole, openSignedIn, tokens } from "../support/ConsolePage.ts"
import { adminToken } from "../support/Process.ts"

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

describeConsole((test) => {
  test("issues, shows, changes, rotates and revokes a key, without accessibility violations", async (service) => {
    const { does, errors, page, readSecret, signIn, urls } = await openConsole(service)
    await signIn("adm_wrong")
    await does({ seesAlert: "admin token" })
    await assertAccessible(page)
    await page.getByLabel("Admin token").fill("")
    await signIn()

    const name = `<img src=x onerror="document.title='owned'">`
    const entries = { Name: name, Plan: "enterprise", "Limit per minute": "5", "Limit per day": "100" }
    const wrong = { ...entries, "Limit per day": "1" }
    await does({ press: "Issue key", fill: wrong, confirm: "Issue key", seesAlert: "limits: expected per minute" })
    await does({ fill: entries })
    await assertAccessible(page)
    await does({ confirm: "Issue key", dialog: "New secret" })
    await assertAccessible(page)
    const secret = await readSecret()
    assert.match(secret, /^psk_\w{38}$/)
    await does({ confirm: "Done", follow: name, heading: `${name} active`, sees: "at most 0 a minute" })
    assert.strictEqual(await page.title(), "staging · Keys · Petstore console", "the markup is text")
    assert.notInclude(await page.content(), secret)

    await does({ requests: [secret, 200, 200, 200], used: 3, sees: /^3 of 5 used, 2 left$/ })
    const chart = page.getByRole("figure").filter({ hasText: "Last day" })
    await chart.locator(`[title$="3 allowed, 0 rejected, 0 banned"]`).waitFor({ state: "attached" })
    assert.deepStrictEqual((await callApi(service, secret, 9)).slice(0, 3), [200, 200, 429])
    await does(
      { sees: "Banned." },
      { follow: "Keys", select: { state: "banned" }, sees: "1 in total" },
      { follow: name, press: "Lift ban", misses: "Banned.", sees: "The ban was lifted." },
      // The used requests stay used after the change.
      { press: "Change", fill: { Name: "acme", Plan: "pro" }, confirm: "Save", sees: "300 a minute, 10,000 a day" },
      { used: 5, requests: [secret, 200] }
    )

    // Without a choice of the grace period, nothing is sent.
    await does({ press: "Rotate", confirm: "Rotate key", dialog: "Rotate key" })
    await does({ select: { "The current secret": "stops working now" }, confirm: "Rotate key", dialog: "New secret" })
    const rotated = await readSecret()
    await does({ requests: [secret, 401] }, { requests: [rotated, 200], confirm: "Done" })
    await does({ press: "Revoke", confirm: "Revoke key", heading: "acme revoked", requests: [rotated, 401] })
    await assertAccessible(page)

    // The page of the key, which this click leaves, shows actions too.
    await does({ follow: "Audit log", heading: "Audit log", sees: "enterprise → pro" })
    const actions = await page.locator(".action").allInnerTexts()
    assert.deepStrictEqual(actions.slice(0, 6), ["revoke", "rotate", "update", "unban", "ban", "issue"])
    const row = page.getByRole("row").filter({ hasText: "enterprise → pro" })
    await row.filter({ hasText: "per minute 5 → 300" }).getByRole("link", { name: "acme" }).waitFor()
    await assertAccessible(page)

    await does({ press: "Sign out", focus: "input" })
    await page.goBack()
    await page.getByLabel("Admin token").waitFor()
    assert.deepStrictEqual([...new Set(urls.map((url) => new URL(url).origin))], [service.management])
    assert.deepStrictEqual(errors, [])
  })

  test("does not close a new secret on Escape, Back or reload", async (service) => {
    const { id, key: former } = await callAdmin(service, "POST", "/keys", { name: "held", plan: "free" })
    const { does, page, readSecret } = await openSignedIn(service)
    // Within the page, only the fragment changes.
    await page.goto(`${service.management}/#/keys/${id}`)
    const tryToLeave = async (dialog: string): Promise<void> => {
      for (let i = 0; i < 2; i++) await page.keyboard.press("Escape")
      await page.evaluate("new Promise((resolve) => { addEventListener('hashchange', resolve); history.back() })")
      assert.include(page.url(), id)
      // The reload waits for the response to the question.
      const reload = page.evaluate("setTimeout(() => location.reload())")
      const [question] = await Promise.all([page.waitForEvent("dialog"), reload])
      assert.strictEqual(question.type(), "beforeunload")
      await question.dismiss()
      await does({ dialog })
    }
    const response = Promise.withResolvers<void>()
    await page.route("**/rotate", (route) => response.promise.then(() => route.continue()))
    await does({ press: "Rotate", select: { "The current secret": "works for 1 hour" }, confirm: "Rotate key" })
    await tryToLeave("Rotate key")
    response.resolve()
    const secret = await readSecret()
    await tryToLeave("New secret")
    await does({ requests: [secret, 200] })
    await does({ requests: [former, 200], confirm: "Done", sees: /stops working in \d+ min/ }, {
      sees: `psk_…${former.slice(-4)}`
    })
    await does({ press: "Revoke former secrets", confirm: "Revoke former secrets", misses: "stops working in" })
    await does({ requests: [former, 401] }, { requests: [secret, 200], back: "Keys" })
  })

  test("shows what another operator changed meanwhile, changes nothing, and keeps the input", async (service) => {
    const { id, key } = await callAdmin(service, "POST", "/keys", { name: "\u202eemca", plan: "free" })
    const { does, page } = await openSignedIn(service, `#/keys/${id}`, tokens.alice)
    assert.strictEqual(await page.locator("h1 bdi").textContent(), "\u202eemca")
    /** Changes the plan while a dialog is open. The page reads the key every 3 seconds, which must not help. */
    const changePlan = async (plan: string): Promise<void> => {
      await callAdmin(service, "PATCH", `/keys/${id}`, { plan })
      await page.locator(".properties", { hasText: plan }).waitFor({ timeout: 10_000 })
    }
    await does({ press: "Change", fill: { Name: "typed" } })
    await changePlan("pro")
    await does({ confirm: "Save", sees: "plan free → pro, per minute 60 → 300" })
    const field = (label: string) => page.getByRole("dialog").getByLabel(label).inputValue()
    assert.deepStrictEqual([await field("Name"), await field("Plan")], ["typed", "pro"])
    await does({ confirm: "Save", heading: "typed active" })
    assert.containsSubset(await callAdmin(service, "GET", `/keys/${id}`), { name: "typed", plan: "pro", version: 3 })

    let before = "pro"
    for (const [button, plan] of [["Rotate", "business"], ["Disable", "pro"], ["Revoke", "business"]] as const) {
      await does({ press: button })
      if (button === "Rotate") await does({ select: { "The current secret": "stops working now" } })
      await changePlan(plan)
      await does({ confirm: `${button} key`, sees: `nothing was saved: plan ${before} → ${plan}` })
      await does({ confirm: "Cancel" })
      before = plan
    }
    await does({ requests: [key, 200], follow: "Audit log" })
    await page.getByLabel("Operator").fill("alice")
    await does({ key: "Enter", sees: "1 in total", firstRow: "\u202eemca → typed" })
    await does({ select: { action: "revoke" }, sees: "Nothing was found." })
    await does({ select: { action: "any action" }, sees: "1 in total" })
  })

  test("filters the audit log by key and period, which its URL has", async (service) => {
    const { id } = await callAdmin(service, "POST", "/keys", { name: "audited", plan: "free" })
    await callAdmin(service, "POST", "/keys", { name: "unaudited", plan: "free" })
    const { does, page } = await openSignedIn(service, "#/audit")
    await does({ seesLink: "unaudited" })
    for (const [label, text] of [["Key id", id], ["From", "2026-01-01"], ["Before", "2026-01-02"]]) {
      await page.getByLabel(label).fill(text)
    }
    await does({ press: "Search", sees: "Nothing was found." })
    assert.include(page.url(), `key=${id}&since=2026-01-01&until=2026-01-02`)
    await page.getByLabel("Before").fill("2100-01-02")
    await does({ press: "Search", sees: "1 in total", missesLink: "unaudited" })
  })

  test("finds the key of a secret with a URL that contains only the secret's hash", async (service) => {
    const { key } = await callAdmin(service, "POST", "/keys", { name: "leaked", plan: "free" })
    await callAdmin(service, "POST", "/keys", { name: "other", plan: "free" })
    const { does, page, urls } = await openSignedIn(service)
    const line = `curl -H 'Authorization: Bearer ${key}'`
    await does({ seesLink: "other", search: line, sees: "the secret works", missesLink: "other" })
    assert.strictEqual(await page.getByLabel("Search keys").inputValue(), "")
    assert.notInclude([page.url(), ...urls].join(" "), key)
    await does({ press: "Refresh", sees: "the secret works" })
    await does({ follow: "Keys", seesLink: "other", misses: "the secret works" })
    await does({ back: "Keys", sees: "the secret works" })
    await does({ follow: "Keys", seesLink: "other", search: key.slice(0, -1), seesAlert: "not a complete secret" })
    await does({ search: "leaked", sees: "1 in total", misses: "not a complete secret" })
  })

  test("shows the operator, the environment, and only the actions that the token allows", async (service) => {
    const limits = { perMinute: 1, perDay: 1 }
    const { id, key } = await callAdmin(service, "POST", "/keys", { name: "banned", plan: "enterprise", limits })
    await callApi(service, key, 9)
    const { does, page } = await openSignedIn(service, `#/keys/${id}`, tokens.board)
    await does({ sees: "Banned." })
    const buttons = async () => (await page.getByRole("button").allInnerTexts()).toSorted()
    assert.deepStrictEqual(await buttons(), ["Refresh", "Sign out"])
    assert.match(await page.getByRole("banner").innerText(), /staging[^]*board \(read only\)/)
    await does({ follow: "Keys", seesLink: "banned" })
    assert.deepStrictEqual(await buttons(), ["Refresh", "Search", "Sign out"])
  })

  test("disables and enables a key", async (service) => {
    const limits = { perMinute: 100, perDay: 100 }
    const { id, key } = await callAdmin(service, "POST", "/keys", { name: "busy", plan: "enterprise", limits })
    assert.include(await callApi(service, key, 150), 429)
    const { does, page } = await openSignedIn(service, `#/keys/${id}`)
    for (const [action, state, status] of [["Disable", "disabled", 401], ["Enable", "active", 429]] as const) {
      await does({ press: action, confirm: `${action} key`, heading: `busy ${state}`, requests: [key, status] })
    }
    await does({ follow: "Keys", seesLink: "busy" })
    await assertAccessible(page)
  })

  test("keeps the filter and the position of a list in its URL, and the token only in memory", async (service) => {
    const expiresAt = new Date(Date.now() + 29 * 86_400_000).toISOString()
    for (let i = 0; i < 55; i++) {
      await callAdmin(service, "POST", "/keys", { name: `page ${i}`, plan: "business", ...i === 7 && { expiresAt } })
    }
    const { does, page, signIn } = await openSignedIn(service)
    await does({ select: { plan: "business" } })
    // The list before the filter has a next page too.
    const next = page.locator(`a[href*="plan=business"]`, { hasText: "Next page" })
    await does({ sees: "1–50 of more, newest first" })
    await next.click()
    await does({ seesLink: "page 0", sees: /^5\d–(\d+) of \1, newest first$/ }, {
      follow: "Previous page",
      seesLink: "page 54",
      missesLink: "Previous page"
    })
    await next.click()
    await does({ seesLink: "page 0" })
    assert.deepStrictEqual(await page.context().storageState({ indexedDB: true }), { cookies: [], origins: [] })
    assert.strictEqual(await page.evaluate("sessionStorage.length + localStorage.length"), 0)
    assert.notInclude(page.url() + await page.content(), adminToken)
    await page.reload()
    await signIn()
    await does({ seesLink: "page 0" })
    assert.strictEqual(await page.getByLabel("plan").inputValue(), "business")
    await does({ follow: "page 0", heading: "page 0 active", back: "Keys" })
    await does({ follow: "First page", firstRow: "page 54" }, { select: { order: "oldest first" }, seesLink: "page 0" })
    await does({ select: { expiresBefore: "expires within 30 days" }, firstRow: "page 7", sees: "1 in total" })
    await does({ firstRow: `${expiresAt.slice(0, 16).replace("T", " ")} UTC` })
    await page.goto(`${service.management}/#/keys?plan=business&limit=20`)
    await does({ sees: "1–20 of more, newest first" })
    await next.click()
    await does({ sees: "21–40 of more, newest first" })
    await next.click()
    await does({ sees: /^41–(\d+) of \1, newest first$/ })
    // After a reload on the second page, nobody knows how many rows are on the first.
    await page.goBack()
    await page.reload()
    await signIn()
    await does({ sees: "20 on this page, newest first" })
    await next.click()
    await does({ sees: /^\d+ on this page, newest first$/ })
  })

  test("says that a list failed instead of that it is empty, and names an unknown key", async (service) => {
    const { does, page } = await openSignedIn(service, "#/keys/key_none")
    await does({ heading: "key_none", seesAlert: "There is no key key_none." })
    const body = JSON.stringify({ code: "service_unavailable", message: "The database is away.", status: 503 })
    await page.route(
      "**/admin/keys?*",
      (route) => route.fulfill({ status: 503, contentType: "application/json", headers: { "retry-after": "1" }, body })
    )
    await does({ follow: "Keys", seesAlert: "The database is away." })
    assert.strictEqual(await page.getByText("Nothing was found.").count(), 0)
    await page.unroute("**/admin/keys?*")
    await page.getByLabel("Search keys").fill("no such name")
    await does({ key: "Enter", sees: "Nothing was found." })
  })

  test("issues one key if the operator tries again after a lost response", async (service) => {
    const { does, page } = await openSignedIn(service)
    await page.route("**/admin/keys", (route) => route.fetch().then(() => route.abort()), { times: 1 })
    await does({ press: "Issue key", fill: { Name: "once" }, confirm: "Issue key", seesAlert: "" })
    await does({ confirm: "Issue key" })
    const message = await page.getByRole("alert").filter({ hasText: "key_" }).innerText()
    const issued = await callAdmin(service, "GET", "/keys?search=once")
    assert.strictEqual(issued.length, 1)
    assert.include(message, issued[0].id)
  })

  test("works with the keyboard alone, and returns the focus when a dialog closes", async (service) => {
    const { does, page } = await openSignedIn(service)
    await does({ choose: "Issue key", dialog: "Issue key", key: "Escape" })
    await page.getByRole("dialog").waitFor({ state: "hidden" })
    await does({ choose: "Issue key", enter: "keyboard", dialog: "New secret" })
    await does({ choose: "Done", focusOn: "Issue key", key: "Tab", enter: "keyboard", sees: "1 in total" })
    await does({ choose: "keyboard", heading: "keyboard active" })
    await does({ choose: "Revoke", focusOn: "Cancel" }, { choose: "Revoke key", heading: "keyboard revoked" })
  })

  test("rejects calls and frames of other origins", async (service) => {
    const { management } = service
    // The operator is signed in, in another tab of the same browser.
    const page = await (await openSignedIn(service)).page.context().newPage()
    await page.goto(service.foreign)
    // Chromium shows its own error in the frame.
    assert.match(page.frame("framed")?.url() ?? "", /^chrome-error:/)
    const end = `.then(({ type, status }) => type + " " + status, String)`
    const call = (options: object) =>
      page.evaluate<string>(`fetch("${management}/admin/keys", ${JSON.stringify(options)})${end}`)
    const forged = { method: "POST", body: JSON.stringify({ name: "forged", plan: "free" }) }
    const headers = { "authorization": `Bearer ${adminToken}`, "content-type": "application/json" }
    assert.match(await call({ credentials: "include" }), /^TypeError/)
    // Even with the token, the preflight request fails.
    assert.match(await call({ ...forged, headers }), /^TypeError/)
    // A form can send the same request.
    assert.strictEqual(await call({ ...forged, mode: "no-cors", credentials: "include" }), "opaque 0")
    assert.deepStrictEqual(await callAdmin(service, "GET", "/keys?search=forged"), [])
  })
})
