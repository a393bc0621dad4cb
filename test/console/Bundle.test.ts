/** Tests the built files of the console: they are what the sources make, and small. */
import { assert, describe, it } from "@effect/vitest"
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { gzipSync } from "node:zlib"
import { rolldown } from "rolldown"
import config, { output as outputOptions } from "../../rolldown.config.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))
const read = (name: string): string => readFileSync(join(root, "dist/console", name), "utf8")

describe("The files of the console", () => {
  it("are what `npm run build:console` makes of the sources", async () => {
    const bundle = await rolldown({ ...config, cwd: root })
    const { output } = await bundle.generate(outputOptions)
    await bundle.close()
    assert.sameMembers(readdirSync(join(root, "dist/console")), output.map(({ fileName }) => fileName))
    for (const file of output) {
      // The texts are long, so a failure names the file only.
      const text = file.type === "chunk" ? file.code : String(file.source)
      assert.isTrue(read(file.fileName) === text, `${file.fileName} is outdated: run npm run build:console`)
    }
  })

  it("have less than 100 kB, compressed", () => {
    const sizes = ["index.html", "console.css", "console.js"].map((name) => gzipSync(read(name), { level: 9 }).length)
    assert.isBelow(sizes.reduce((sum, size) => sum + size, 0), 100_000)
  })
})
