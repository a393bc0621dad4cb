/** Tests the command lines, messages and exit codes of the `petstore` command without a service. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { runCommand } from "../support/CommandRun.ts"

/** Runs the command. Nothing listens on its port, so a request makes it exit with 1. */
const run = (args: ReadonlyArray<string>, address = "127.0.0.1:1") =>
  runCommand({ ADMIN_TOKEN: "adm_test", PETSTORE_ADMIN_URL: address }, args)

const issue = ["issue", "--name", "a"]

describe("The petstore command", () => {
  it.effect("prints the error of an invalid command line, and exits with 2", () =>
    Effect.gen(function*() {
      const cases = [
        [[...issue, "--plan", "gold"], /--plan: "gold"\. Expected: "free" \| "pro"/],
        [["issue", "--name", "a\nb"], /--name: .*without control characters/s],
        [[...issue, "--per-minute", "0"], /--per-minute: "0".*between 1 and 2147483647/s],
        [[...issue, "--expires-at", "soon"], /--expires-at: "soon".*an instant like 2030-12-31T00:00:00Z/s],
        [["rotate", "key_a", "--grace", "-1"], /--grace: "-1".*between 0 and 2592000/s],
        [["list", "--limit", "0"], /--limit: "0"\. Expected a number of at least 1/],
        [["list", "--search", "psk_0"], /Find the key of a secret with petstore keys whose/],
        [["lst"], /Unknown subcommand "lst".*Did you mean this\?\s+list/s]
      ] as const
      for (const [args, expected] of cases) {
        const { code, stderr, stdout } = yield* run(["keys", ...args])
        assert.strictEqual(code, 2)
        assert.include(stdout, "USAGE")
        assert.match(stderr, expected)
      }
    }))

  it.effect("prints one line for values that contradict each other, and exits with 2", () =>
    Effect.gen(function*() {
      const both = "--per-minute and --per-day"
      const cases = [
        [[...issue, "--plan", "enterprise"], `${both}: required on plan enterprise`],
        [[...issue, "--per-minute", "1", "--per-day", "1"], `${both}: fixed on plan free: only enterprise has its own`],
        [["update", "key_a", "--per-minute", "1"], `${both}: use both, or none`]
      ] as const
      for (const [args, message] of cases) {
        assert.deepStrictEqual(yield* run(["keys", ...args]), { code: 2, stdout: "", stderr: `${message}\n` })
      }
    }))

  it.effect("prints help and a completion script, and exits with 0", () =>
    Effect.gen(function*() {
      for (const args of [[], ["keys"]]) {
        const { code, stdout } = yield* run(args)
        assert.strictEqual(code, 0)
        assert.include(stdout, "SUBCOMMANDS")
      }
      assert.match((yield* run(["keys", "issue", "--help"])).stdout, /--plan .*free, pro, business, enterprise/)
      assert.include((yield* run(["--completions", "bash"])).stdout, "whose")
    }))

  it.effect("exits with 1 if no service responds, and with 2 for an invalid address", () =>
    Effect.gen(function*() {
      for (const address of ["127.0.0.1:1", "HTTP://127.0.0.1:1/", "[::1]:1"]) {
        const { code, stderr, stdout } = yield* run(["keys", ...issue], address)
        assert.deepStrictEqual({ code, stdout }, { code: 1, stdout: "" }, address)
        assert.match(stderr, /1\]?:1\/.*\. Start the service, or set PETSTORE_ADMIN_URL to its/)
      }
      const stderr = "PETSTORE_ADMIN_URL: expected an address like http://127.0.0.1:9090, without a path\n"
      const invalid = ["ftp://a:1", "localhost:1/admin", "http://a:1?x=1", "http://u:secret@a", "localhost:99999"]
      for (const address of invalid) {
        assert.deepStrictEqual(yield* run(["keys", "list"], address), { code: 2, stdout: "", stderr }, address)
      }
    }))
})
