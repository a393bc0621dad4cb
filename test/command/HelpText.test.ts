/** Tests the help of each subcommand, and that docs/command.md says the same. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { exitCodes } from "../../src/command/CommandFailure.ts"
import { variables } from "../../src/command/HelpText.ts"
import { subcommands } from "../../src/command/PetstoreCommand.ts"
import * as Settings from "../../src/config/Settings.ts"
import { runInProcess } from "../support/CommandRun.ts"
import { readPage } from "../support/Documents.ts"

const page = readPage("docs/command.md")

/** Returns the help of a subcommand. */
const helpOf = (...args: ReadonlyArray<string>) => Effect.map(runInProcess(...args, "--help"), ({ stdout }) => stdout)

const defaultOf = ({ byDefault }: Settings.Setting<unknown>): string => byDefault.replaceAll("`", "")

describe("The help of the petstore command", () => {
  for (const { name } of subcommands) {
    it.effect(`names the variables with their defaults, and the exit codes, for keys ${name}`, () =>
      Effect.gen(function*() {
        const help = yield* helpOf("keys", name)
        assert.include(help, `petstore keys ${name} [flags]`)
        for (const variable of variables) assert.include(help, variable.name)
        for (const { code, meaning } of exitCodes) assert.match(help, new RegExp(`^ {2}${code} +${meaning}$`, "m"))
        for (const setting of [Settings.managementPort, Settings.dataDir]) {
          assert.match(help, new RegExp(`^ {2}${setting.name} .*\\(default: ${defaultOf(setting)}\\)$`, "m"))
        }
        for (const variable of ["PETSTORE_ADMIN_URL", Settings.adminToken.name, "NO_COLOR"]) {
          assert.match(help, new RegExp(`^ {2}${variable} .*\\(default: .+\\)$`, "m"))
        }
      }))
  }

  it.effect("names the values and the defaults of flags", () =>
    Effect.gen(function*() {
      const flags = [
        ["issue", "--plan", /default: free.*choices: free, pro, business, enterprise/],
        ["issue", "--expires-at", /default: never/],
        ["list", "--plan", /default: all.*choices: free, pro, business, enterprise/],
        ["list", "--state", /default: all.*choices: active, expired, revoked/],
        ["list", "--limit", /default: all/],
        ["list", "--watch", /default: 2/],
        ["log", "--limit", /default: 100/],
        ["rotate", "--grace-period", /default: 0/]
      ] as const
      for (const [name, flag, expected] of flags) {
        const line = (yield* helpOf("keys", name)).split("\n").find((text) => text.includes(`${flag} `))
        assert.match(line ?? "", expected, `${name} ${flag}`)
      }
    }))
})

describe("docs/command.md", () => {
  it("has each subcommand, each exit code and each variable of the help", () => {
    for (const { name } of subcommands) assert.match(page, new RegExp(`^\\| \`petstore keys ${name}\\b`, "m"))
    for (const { code, meaning } of exitCodes) assert.include(page, `| ${code} | ${meaning} |`)
    for (const { byDefault, meaning, name } of variables) {
      const row = page.replaceAll("`", "").split("\n").find((line) => line.startsWith(`| ${name} |`))
      assert.include(row, `| ${byDefault} |`, name)
      assert.include(row, name === "PETSTORE_ADMIN_URL" ? "The address of the management port" : meaning, name)
    }
  })
})
