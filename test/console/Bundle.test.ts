/** Tests the committed files of the console: they are what the sources make, small, and name no other host. */
import { assert, describe, it } from "@effect/vitest"
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { gzipSync } from "node:zlib"
import { rolldown } from "rolldown"
import config, { output as outputOptions } from "../../rolldown.config.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))
const folder = join(root, "src/console/bundle")
const read = (name: string): string => readFileSync(join(folder, name), "utf8")

/** Bundles the sources, without writing a file. */
const bundleSources = async (): Promise<Record<string, string>> => {
  const bundle = await rolldown({ ...config, cwd: root })
  const { output } = await bundle.generate(outputOptions)
  await bundle.close()
  return Object.fromEntries(
    output.map((file) => [file.fileName, file.type === "chunk" ? file.code : String(file.source)])
  )
}

describe("The files of the console", () => {
  it("are what `npm run build:console` makes of the sources", async () => {
    const built = await bundleSources()
    assert.sameMembers(readdirSync(folder), Object.keys(built))
    for (const [name, text] of Object.entries(built)) {
      // The texts are long, so a failure names the file only.
      assert.isTrue(read(name) === text, `${name} is outdated: run npm run build:console`)
    }
  }, 60_000)

  it("have less than 100 kB for the first view, compressed, without the charts that are loaded later", () => {
    const sizes = ["index.html", "console.css", "console.js"].map((name) => gzipSync(read(name), { level: 9 }).length)
    const total = sizes.reduce((sum, size) => sum + size, 0)
    console.info(`The first view: ${total} bytes, compressed`)
    assert.isBelow(total, 100_000)
    assert.notMatch(read("index.html"), /charts/)
    assert.include(read("console.js"), "import(`./charts.js`)")
    assert.notInclude(read("console.js"), "uplot")
  })

  it("have no inline script, no inline style, and no code that builds code or markup from text", () => {
    assert.notMatch(read("index.html"), /<script(?![^>]*src=)|<style|style=|\son\w+=/)
    for (const name of ["console.js", "charts.js"]) {
      assert.notMatch(read(name), /\beval\(|new Function|insertAdjacentHTML|document\.write/, name)
    }
    // Preact sets markup only for this property.
    const sources = readdirSync(join(root, "src/console")).filter((name) => /\.tsx?$/.test(name))
    assert.isAbove(sources.length, 20)
    for (const name of sources) {
      assert.notMatch(readFileSync(join(root, "src/console", name), "utf8"), /dangerouslySetInnerHTML|innerHTML/, name)
    }
  })

  it("load nothing from another host", () => {
    assert.notMatch(read("console.css"), /@import|url\(/)
    assert.deepStrictEqual(
      [...read("index.html").matchAll(/(?:src|href)="([^"]*)"/g)].map(([, url = ""]) => url.slice(0, 11)),
      [
        "data:image/",
        "console.css",
        "console.js"
      ]
    )
  })
})
