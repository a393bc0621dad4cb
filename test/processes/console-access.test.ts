/** Tests the accessibility of the console with axe, and its protection against other pages, in Chromium. */
import { assert } from "@effect/vitest"
import axe from "axe-core"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import type { Page } from "playwright-core"
import { onTestFinished } from "vitest"
import { callAdmin, callApi, describeConsole, openConsole, openSignedIn, signIn } from "../support/ConsolePage.ts"
import { adminToken } from "../support/Process.ts"

const files = ["/", "/console.js", "/console.css"]

/** Returns the rules of axe that the page breaks, with the elements. */
const violationsOf = async (page: Page): Promise<ReadonlyArray<string>> => {
  await page.evaluate(axe.source)
  return page.evaluate<ReadonlyArray<string>>(
    `axe.run().then(({ violations }) => violations.map(({ id, nodes }) =>
      id + ": " + nodes.map(({ html, failureSummary }) => html + " " + failureSummary).join(" | ")))`
  )
}

describeConsole((test) => {
  test("has no violation of a rule of axe in any view, light and wide, or dark and 360 pixels narrow", async (service) => {
    const issue = (name: string) => callAdmin(service, "POST", "/keys", { name, plan: "free" })
    await callAdmin(service, "DELETE", `/keys/${(await issue("revoked")).id}`)
    const limits = { perMinute: 3, perDay: 100 }
    const banned = await callAdmin(service, "POST", "/keys", { name: "banned", plan: "enterprise", limits })
    await Promise.all(Array.from({ length: 22 }, (_, index) => issue(`a key with a long name ${index}`)))
    for (const [colorScheme, width] of [["light", 1280], ["dark", 360]] as const) {
      const { page } = await openConsole(service, "", { colorScheme, viewport: { width, height: 800 } })
      const check = async (view: string): Promise<void> => {
        assert.deepStrictEqual(await violationsOf(page), [], `${view}, ${colorScheme}`)
        const { clientWidth, scrollWidth } = await page.evaluate<Record<"clientWidth" | "scrollWidth", number>>(
          "({ clientWidth, scrollWidth } = document.documentElement)"
        )
        assert.isAtMost(scrollWidth, clientWidth, `${view}, ${width}`)
      }
      await signIn(page, "adm_wrong")
      await page.getByRole("alert").waitFor()
      await check("sign-in")
      await page.getByLabel("Admin token").fill("")
      await signIn(page)
      await page.getByRole("link", { name: "banned", exact: true }).waitFor()
      await check("keys")
      await page.getByRole("button", { name: "Issue key" }).click()
      await page.getByRole("dialog").getByLabel("Plan").selectOption("enterprise")
      await check("issue")
      await page.keyboard.press("Escape")
      // A new ban lasts for a minute at least.
      await callAdmin(service, "DELETE", `/keys/${banned.id}/ban`)
      await callApi(service, banned.key, 8)
      await page.getByRole("link", { name: "banned", exact: true }).click()
      await page.getByText("Banned.").waitFor()
      await callAdmin(service, "POST", `/keys/${banned.id}/rotate`, { gracePeriodSeconds: 60 })
      await page.getByRole("button", { name: "End former secrets" }).waitFor()
      await check("key")
      for (const action of ["Change", "Rotate", "Revoke"]) {
        await page.getByRole("button", { name: action, exact: true }).click()
        await check(action)
        await page.keyboard.press("Escape")
        await page.getByRole("dialog").waitFor({ state: "hidden" })
      }
      await page.getByRole("link", { name: "Audit log" }).click()
      await page.locator(".action").first().waitFor()
      await check("audit")
    }
  })

  test("keeps the token in memory alone: no cookie, no storage, no URL, and none after a reload", async (service) => {
    const page = await openSignedIn(service)
    for (const path of [...files, "/admin/keys", "/metrics", "/nothing"]) {
      const headers = { authorization: `Bearer ${adminToken}` }
      assert.isNull((await fetch(service.management + path, { headers })).headers.get("set-cookie"), path)
    }
    assert.deepStrictEqual(await page.context().storageState({ indexedDB: true }), { cookies: [], origins: [] })
    assert.strictEqual(await page.evaluate("sessionStorage.length + localStorage.length"), 0)
    assert.notInclude(page.url() + await page.content(), adminToken)
    await page.reload()
    assert.strictEqual(await page.getByLabel("Admin token").inputValue(), "")
  })

  test("cannot be called, embedded or reached under another name by a page of another origin", async (service) => {
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

  test("needs no token for its files, which name the only sources that the page may load from", async ({ management }) => {
    for (const path of files) {
      const { headers, status } = await fetch(management + path)
      assert.strictEqual(status, 200, path)
      const policy = headers.get("content-security-policy") ?? ""
      assert.include(policy, "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
      assert.include(policy, "frame-ancestors 'none'")
      assert.strictEqual(headers.get("x-content-type-options"), "nosniff")
      assert.strictEqual(headers.get("referrer-policy"), "no-referrer")
      const again = await fetch(management + path, { headers: { "if-none-match": headers.get("etag") ?? "" } })
      assert.strictEqual(again.status, 304, path)
    }
  })
})
