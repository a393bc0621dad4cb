/** Tests the protection of the console against other pages, in Chromium. */
import { assert } from "@effect/vitest"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { onTestFinished } from "vitest"
import { callAdmin, describeConsole, openSignedIn } from "../support/ConsolePage.ts"
import { adminToken } from "../support/Process.ts"

describeConsole((test) => {
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
