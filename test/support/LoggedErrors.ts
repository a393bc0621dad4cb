/** A test that fails also shows the errors that services logged meanwhile: the cause of each 500, with its SQL error. */
import { Logger, References } from "effect"
import { afterEach, beforeEach } from "vitest"
import { describeCause } from "../../src/observability/DescribeCause.ts"

const maxShown = 5
const logged: Array<string> = []

/** Add it to the loggers of each service that a test runs. */
export const recordErrors = Logger.make(({ cause, fiber, logLevel, message }) => {
  if (logLevel !== "Error" && logLevel !== "Fatal") return
  const { method = "", route = "" } = fiber.getRef(References.CurrentLogAnnotations)
  logged.push([message, method, route, describeCause(cause)].flat().filter(String).join(" "))
})

/** Runs in each test file (`vitest.config.ts`). */
export const showLoggedErrors = (): void => {
  beforeEach(() => void (logged.length = 0))
  afterEach(({ task: { result } }) => {
    const [error] = result?.errors ?? []
    if (error === undefined || logged.length === 0) return
    error.message += `\n\nServices logged during the test:\n${logged.slice(0, maxShown).join("\n")}`
  })
}
