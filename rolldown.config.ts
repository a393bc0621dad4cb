/** Bundles the console of operators into `dist/console`: `npm run build:console`, which `npm ci` runs as well. */
import { readFileSync } from "node:fs"
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
    generateBundle() {
      for (const fileName of ["console.css", "index.html"]) {
        const source = readFileSync(new URL(`src/console/${fileName}`, import.meta.url), "utf8")
        this.emitFile({ type: "asset", fileName, source })
      }
    }
  }],
  output
})
