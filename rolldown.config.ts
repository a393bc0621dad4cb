/** Bundles the console of operators into `src/console/bundle`: `npm run build:console`. */
import { readFileSync } from "node:fs"
import { defineConfig, type OutputOptions } from "rolldown"

const read = (file: string): string => readFileSync(new URL(file, import.meta.url), "utf8")

/** How the bundle is written. */
export const output: OutputOptions = {
  dir: "src/console/bundle",
  cleanDir: true,
  format: "esm",
  minify: true,
  comments: false,
  entryFileNames: "console.js",
  // The only dynamic import is that of the charts.
  chunkFileNames: "charts.js"
}

export default defineConfig({
  input: { console: "src/console/mount.tsx" },
  platform: "browser",
  tsconfig: "src/console/tsconfig.json",
  // No module reads a property for its side effect. This saves 2 kB of the compressed bundle.
  treeshake: { propertyReadSideEffects: false, unknownGlobalSideEffects: false },
  plugins: [{
    name: "page",
    generateBundle() {
      const styles = read("node_modules/uplot/dist/uPlot.min.css") + read("src/console/console.css")
      this.emitFile({ type: "asset", fileName: "console.css", source: styles })
      this.emitFile({ type: "asset", fileName: "index.html", source: read("src/console/index.html") })
    }
  }],
  output
})
