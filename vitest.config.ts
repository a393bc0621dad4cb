import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: "test/support/setup.ts",
    testTimeout: 30_000,
    hookTimeout: 60_000,
    coverage: { include: ["src/**"], reporter: ["text-summary"] }
  }
})
