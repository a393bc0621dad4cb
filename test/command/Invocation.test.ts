/** Tests the messages and exit codes of invalid command lines, which the command finds without a service. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { runInProcess } from "../support/CommandRun.ts"

const issue = ["issue", "--name", "a"]

describe("An invalid command line", () => {
  it.effect("has one line on standard error, nothing on standard output, and the exit code 2", () =>
    Effect.gen(function*() {
      const cases = [
        [[...issue, "--plan", "gold"], `--plan: expected free, pro, business or enterprise, not "gold"`],
        [[...issue, "--plan", "enterprise"], "--per-minute and --per-day: required on plan enterprise"],
        [
          [...issue, "--plan", "enterprise", "--per-minute", "0"],
          "--per-minute: expected a value between 1 and 2147483647"
        ],
        [[...issue, "--plan", "enterprise", "--per-day", "1"], "--per-minute: required together with --per-day"],
        [
          [...issue, "--per-minute", "1", "--per-day", "1"],
          "--per-minute and --per-day: fixed on plan free: only enterprise has its own"
        ],
        [["issue", "--name", ""], "--name: expected a value with a length of at least 1"],
        [["issue", "--name", "x".repeat(10_000)], "--name: expected a value with a length of at most 255"],
        [["issue", "--name", "a\nb"], "--name: expected a name that can be read, without control characters"],
        [["rotate", "key_a", "--grace-period", "-1"], "--grace-period: expected a value between 0 and 2592000"],
        [
          ["update", "key_a"],
          "Nothing to change: use --name, --plan, --per-minute and --per-day, or --expires-at"
        ],
        [["update", "key_a", "--per-minute", "1"], "--per-day: required together with --per-minute"],
        [["update", "key_a", "--expires-at", "soon"], "--expires-at: expected an instant like 2030-12-31T00:00:00Z"],
        [["list", "--limit", "0"], "--limit: expected a value greater than or equal to 1"],
        [["list", "--limit", "many"], `--limit: expected a whole number, not "many"`],
        [["list", "--limit", "1.5"], `--limit: expected a whole number, not "1.5"`],
        [
          ["list", "--search", "psk_0123"],
          "--search: expected a part of a name or an id. Find the key of a secret with petstore keys whose"
        ],
        [["list", "--state"], "--state: expected active, expired or revoked"],
        [["list", "--watch"], "--watch: expected a terminal. In a pipe, repeat the command instead"],
        [["list", "--watch=0"], "--watch: expected a value between 1 and 86400"],
        [["bogus"], `"bogus": unknown subcommand of petstore keys. See --help`],
        [["lst"], `"lst": unknown subcommand of petstore keys. Did you mean list?`],
        [["list", "--limt", "3"], "--limt: unknown flag of petstore keys list. Did you mean --limit?"],
        [["list", "--bogus=psk_0123456789"], "--bogus: unknown flag of petstore keys list. See --help"],
        [["show"], "<id>: required"],
        [["show", "key_a", "psk_0123456789"], `"psk_…": unexpected argument`]
      ] as const
      for (const [args, stderr] of cases) {
        assert.deepStrictEqual(yield* runInProcess("keys", ...args), { code: 2, stdout: "", stderr })
      }
    }))

  it.effect("has all its errors reported at once, one per line", () =>
    Effect.gen(function*() {
      const cases = [
        [
          ["issue", "--plan", "gold", "--bogus", "x", "--per-minute", "0", "--expires-at=soon", "--jsn"],
          [
            "--bogus: unknown flag of petstore keys issue. See --help",
            "--jsn: unknown flag of petstore keys issue. Did you mean --json?",
            "--name: required",
            `--plan: expected free, pro, business or enterprise, not "gold"`,
            "--per-minute: expected a value between 1 and 2147483647",
            "--expires-at: expected an instant like 2030-12-31T00:00:00Z"
          ]
        ],
        [
          ["issue", "--plan", "enterprise", "--name", ""],
          [
            "--name: expected a value with a length of at least 1",
            "--per-minute and --per-day: required on plan enterprise"
          ]
        ],
        [
          ["show", "--watch", "--json"],
          ["<id>: required", "--watch: expected a terminal. In a pipe, repeat the command instead"]
        ],
        [
          ["list", "--limit", "0", "--plan", "gold", "--state"],
          [
            "--state: expected active, expired or revoked",
            `--plan: expected free, pro, business or enterprise, not "gold"`,
            "--limit: expected a value greater than or equal to 1"
          ]
        ],
        [
          ["issue", "--name", "a", "--per-minute", "5", "--plan"],
          ["--plan: expected free, pro, business or enterprise", "--per-day: required together with --per-minute"]
        ]
      ] as const
      for (const [args, lines] of cases) {
        const { code, stderr } = yield* runInProcess("keys", ...args)
        assert.deepStrictEqual({ code, lines: stderr.split("\n") }, { code: 2, lines })
      }
    }))

  it.effect("is told from a valid one, whose request fails with the exit code 1", () =>
    Effect.gen(function*() {
      for (
        const args of [["list"], [...issue, "--plan=pro"], ["revoke", "key_a"], ["update", "key_a", "--name", "b"]]
      ) {
        assert.deepStrictEqual(yield* runInProcess("keys", ...args), {
          code: 1,
          stdout: "",
          stderr:
            "http://127.0.0.1:1 does not respond. Start the service, or set PETSTORE_ADMIN_URL to its management port."
        })
      }
    }))
})

describe("A command line without a subcommand", () => {
  it.effect("prints the help and succeeds", () =>
    Effect.gen(function*() {
      for (const args of [[], ["keys"]]) {
        const { code, stderr, stdout } = yield* runInProcess(...args)
        assert.deepStrictEqual({ code, stderr }, { code: 0, stderr: "" })
        assert.include(stdout, "SUBCOMMANDS")
      }
    }))
})
