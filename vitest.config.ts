import { defineConfig } from "vitest/config"

const long = ["test/processes/*.test.ts", "test/**/*.long.test.ts"]

export default defineConfig({
  test: {
    globalSetup: "test/support/setup.ts",
    coverage: { include: ["src/**"], reporter: ["text-summary"] },
    // Files share the imported modules of their worker, because imports take 40 % of the quick suites' CPU.
    isolate: false,
    // As Node imports CommonJS.
    deps: { interopDefault: false },
    projects: [
      // `until` fails before the timeout of a test, with the condition that it waits for.
      {
        extends: true,
        test: { name: "quick", include: ["test/**/*.test.ts"], exclude: long, testTimeout: 20_000, hookTimeout: 60_000 }
      },
      // Above what any test needs on a busy machine. No test measures time by it.
      { extends: true, test: { name: "long", include: long, testTimeout: 360_000, hookTimeout: 360_000 } }
    ]
  }
})
