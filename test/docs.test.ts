/** Tests that the files and test titles that the documentation names exist. */
import { assert, describe, it } from "@effect/vitest"
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"

const root = new URL("..", import.meta.url).pathname
const tests = readdirSync(join(root, "test"), { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".test.ts"))
  .map((name) => readFileSync(join(root, "test", name), "utf8"))

for (const document of ["README.md", "SECURITY.md", "CONTRIBUTING.md"]) {
  const text = readFileSync(join(root, document), "utf8")

  describe(`The document ${document}`, () => {
    it("names only files that exist", () => {
      const names = [...text.matchAll(/`((?:[\w.-]+\/)*[\w.-]+\.(?:ts|md|yaml))`|\]\(([\w./-]+)\)/g)]
        .map(([, code, link]) => code ?? link ?? "")
        // The text gives a name without a folder only beside the full path.
        .filter((name) => name.includes("/"))
      assert.isAbove(names.length, 5)
      for (const name of names) assert.isTrue(existsSync(join(root, name)) || existsSync(join(root, "src", name)), name)
    })

    it("quotes only titles of tests that exist", () => {
      for (const [, title = ""] of text.matchAll(/\.test\.ts`: \*([^*]+)\*/g)) {
        assert.isTrue(tests.some((source) => source.includes(title)), title)
      }
    })
  })
}
