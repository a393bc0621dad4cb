import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: "test/support/setup.ts",
    // Files share the imported modules of their worker, because imports take 40 % of the quick suites' CPU.
    isolate: false,
    // As Node imports CommonJS.
    deps: { interopDefault: false },
    // Above what any test needs on a busy machine. No test measures time by it.
    testTimeout: 360_000,
    hookTimeout: 360_000,
    coverage: { include: ["src/**"], reporter: ["text-summary"] }
  }
})
