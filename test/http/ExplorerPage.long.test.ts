import { assert, describe, it, vi } from "@effect/vitest"
import axe from "axe-core"
import { Context, Effect } from "effect"
import { type HttpApiEndpoint, OpenApi } from "effect/http-api"
import { execFile } from "node:child_process"
import { promisify } from "node:util"
import type { Browser, BrowserContextOptions, Page } from "playwright-core"
import { api } from "../../src/resources.ts"
import { launch } from "../support/Browser.ts"
import { firstKey, type Running, send, start } from "../support/Process.ts"
import { browser } from "../support/setup.ts"
import { temporaryDirectory } from "../support/Temporary.ts"

/** The page's names of all operations. */
const operations = Object.values(api.groups)
  .flatMap((group) => Object.values<HttpApiEndpoint.Top>(group.endpoints))
  .map(({ annotations }) => Context.getOrUndefined(annotations, OpenApi.Summary) ?? assert.fail())

/** Opens the page, and waits until it shows the document. `show` follows a link of its navigation. */
const open = async (service: Running, running: Browser, options?: BrowserContextOptions) => {
  const page = await (await running.newContext(options)).newPage()
  await page.goto(service.address)
  await page.getByText("The pets of a store, as JSON over HTTP.").waitFor()
  return { page, show: (name: string) => page.getByRole("link", { name, exact: true }).click() }
}

/** Sends the request of the operation that the page shows. Returns the response that the page shows. */
const execute = async (page: Page): Promise<string> => {
  const responded = page.waitForResponse((response) => response.url().includes("/v1/"))
  await page.getByRole("button", { name: "EXECUTE" }).click()
  const text = (await (await responded).text()).replaceAll(/\s+/g, "")
  // Until the page shows the response, it shows the one before.
  const body = page.locator("api-request syntax-highlighter pre").first()
  await vi.waitUntil(async () => (await body.innerText()).replaceAll(/\s+/g, "") === text, { timeout: 30_000 })
  const [, status = ""] = /: (.*)/.exec(await page.getByText(/^Response Status: /i).first().innerText()) ?? []
  return `${status} ${text}`
}

const run = promisify(execFile)

const programs = {
  curl: (text: string, env: NodeJS.ProcessEnv) => run("bash", ["-c", text], { env }),
  JavaScript: (text: string, env: NodeJS.ProcessEnv) => run(process.execPath, ["-e", text], { env }),
  Python: (text: string, env: NodeJS.ProcessEnv) => run("python3", ["-c", text], { env })
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
        const { page, show } = await open(service, running)
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
        await page.reload()
        await show("List pets")
        assert.match(await execute(page), /^Unauthorized \(401\) .*"code":"missing_api_key"/)
        await show("Authentication")
        await page.getByPlaceholder("api-token").fill(key)
        await page.getByRole("button", { name: "SET" }).click()
        await show("List pets")
        assert.match(await execute(page), /^OK \(200\) .*"name":"Rexofthepage","categoryId":9223372036854775807,/)
        await show("Create a pet")
        assert.match(await execute(page), /^Created \(201\) .*"id":2,"name":"Rex","categoryId":3,/)
        await page.getByRole("button", { name: "BODY" }).click()
        await page.getByLabel("request body").first().fill(`{"name":"it's","categoryId":9007199254740993}`)
        assert.match(await execute(page), /^Created \(201\) .*"id":3,"name":"it's","categoryId":9007199254740993/)

        assert.deepStrictEqual([...hosts], [service.address])
        assert.deepStrictEqual(errors, [])
      })
    }))

  it.live("has samples that work when they are pasted twice into a shell, Node, Python and the browser's console", () =>
    Effect.gen(function*() {
      const service = yield* start({ DATA_DIR: yield* temporaryDirectory })
      const key = yield* firstKey(service)
      yield* send(`${service.address}/v1/pets`, key, "POST", { name: "Max", categoryId: 1 })
      const running = yield* launch
      yield* Effect.promise(async () => {
        const { page, show } = await open(service, running, { permissions: ["clipboard-read", "clipboard-write"] })
        page.on("dialog", (dialog) => void dialog.accept(key))
        const env = { PATH: process.env.PATH, PETSTORE_API_KEY: key }
        const outputs: Record<string, Array<string>> = {}
        for (const operation of operations) {
          await show(operation)
          const output: Array<string> = outputs[operation] = []
          for (const [label, paste] of Object.entries(programs)) {
            await page.getByRole("button", { name: label, exact: true }).click()
            await page.getByRole("button", { name: "Copy code samples" }).click()
            const text = await page.evaluate<string>("navigator.clipboard.readText()")
            for (let i = 0; i < 2; i++) output.push((await paste(text, env)).stdout)
            if (label !== "JavaScript") continue
            const session = await page.context().newCDPSession(page)
            for (let i = 0; i < 2; i++) {
              const logged = page.waitForEvent("console")
              await session.send("Runtime.evaluate", { expression: text, replMode: true, awaitPromise: true })
              output.push((await logged).text())
            }
          }
        }
        const [first, ...creates] = outputs["Create a pet"] ?? []
        assert.match(first ?? "", /^\{"id":2,"name":"Rex","categoryId":3\}$/)
        assert.lengthOf(creates, 7)
        for (const [index, output] of creates.entries()) {
          assert.include(output, `{"id":${index + 3},"name":"Rex","categoryId":3}`)
        }
        for (const output of outputs["List pets"] ?? []) {
          assert.include(output, `[{"id":1,"name":"Max","categoryId":1}]`)
        }
        for (const output of outputs["Get a pet"] ?? []) assert.include(output, `{"id":1,"name":"Max","categoryId":1}`)
      })
    }))

  it.live(
    "breaks no critical or serious rule of axe, light and dark, narrow and wide, and has at most 1 MB",
    () =>
      Effect.gen(function*() {
        const service = yield* start({ DATA_DIR: yield* temporaryDirectory })
        const running = yield* launch
        yield* Effect.promise(async () => {
          assert.isBelow((await (await fetch(`${service.address}/docs`)).arrayBuffer()).byteLength, 1_000_000)
          for (const colorScheme of ["light", "dark"] as const) {
            for (const width of [390, 1280]) {
              const { page } = await open(service, running, { colorScheme, viewport: { width, height: 900 } })
              const check = async (view: string): Promise<void> => {
                const broken = await page.evaluate<ReadonlyArray<string>>(
                  `axe.run().then(({ violations }) => violations.filter(({ impact }) => /critical|serious/.test(impact))
                  .map(({ id, nodes }) => id + ": " + nodes.map(({ html }) => html)))`
                )
                assert.deepStrictEqual(broken, [], `${view} ${colorScheme} ${width}`)
                assert.isAtMost(await page.evaluate<number>("document.documentElement.scrollWidth"), width, view)
              }
              await page.evaluate(axe.source)
              await check("the start")
              for (const operation of operations) {
                await page.getByText(operation, { exact: true }).first().click()
                await page.getByText("Code samples").last().waitFor()
                await check(operation)
              }
            }
          }
        })
      }),
    120_000
  )
})
