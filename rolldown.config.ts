/**
 * Bundles the console of operators into `dist/console`, and copies the explorer of `/docs` to `dist/docs`:
 * `npm run build:console`, which `npm ci` runs as well.
 */
import { cpSync, readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { defineConfig, type OutputOptions } from "rolldown"

/** How the bundle is written. */
export const output: OutputOptions = {
  dir: "dist/console",
  cleanDir: true,
  format: "esm",
  minify: true,
  comments: false,
  entryFileNames: "console.js"
}

export default defineConfig({
  input: { console: "src/console/Console.tsx" },
  platform: "browser",
  tsconfig: "src/console/tsconfig.json",
  logLevel: "warn",
  // No module reads a property for its side effect. This saves 2 kB of the compressed bundle.
  treeshake: { propertyReadSideEffects: false, unknownGlobalSideEffects: false },
  plugins: [{
    name: "page",
    buildStart() {
      const explorer = createRequire(import.meta.url).resolve("openapi-explorer/dist/browser/openapi-explorer.min.js")
      cpSync(explorer, new URL("dist/docs/openapi-explorer.js", import.meta.url))
    },
    generateBundle() {
      for (const fileName of ["console.css", "index.html"]) {
        const source = readFileSync(new URL(`src/console/${fileName}`, import.meta.url), "utf8")
        this.emitFile({ type: "asset", fileName, source })
      }
    }
  }],
  output
})
