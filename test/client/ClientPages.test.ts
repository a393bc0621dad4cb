import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import * as Api from "../../src/api/ApiExports.ts"
import { isRetryableStatus } from "../../src/client/ClientError.ts"
import * as Client from "../../src/client/ClientExports.ts"
import * as Testing from "../../src/testing.ts"
import { readPage } from "../support/Documents.ts"

const { AdminClient, PetstoreClient } = Client

describe("The pages of the client", () => {
  it.effect("name each call of both clients, in the table of the client, and no others", () =>
    Effect.gen(function*() {
      const tables = readPage("package/README.md").split("\n### Keys")
      for (const [index, client] of [yield* PetstoreClient, yield* AdminClient].entries()) {
        const calls = /^\| call \|.*\n.*\n((?:\|.*\n)+)/m.exec(tables[index] ?? "")?.[1] ?? ""
        assert.sameMembers([...calls.matchAll(/^\| `(\w+)/gm)].map(([, name]) => name), Object.keys(client))
      }
    }).pipe(Effect.provide([
      PetstoreClient.layer({ baseUrl: "http://localhost", apiKey: Redacted.make("") }),
      AdminClient.layer({ baseUrl: "http://localhost", token: Redacted.make("") })
    ])))

  it("name each export of its entries, and no others of the contract", () => {
    const readme = readPage("package/README.md")
    for (const name of [...Object.keys(Api), ...Object.keys(Client), ...Object.keys(Testing)]) {
      assert.match(readme, new RegExp(`\\b${name}\\b`), name)
    }
    const [, contract = ""] = /\n## The contract\n([^]*?)\n## /.exec(readme) ?? []
    const types = new Set(["ApiError"])
    const named = [...contract.matchAll(/^\| [^|]* \| (.*) \|$/gm)].flatMap(([, row = ""]) =>
      row.match(/(?<=`)\w+(?=`)/g)
    )
    assert.isEmpty(named.filter((name) => name !== null && !(name in Api) && !types.has(name)))
  })

  it("say of each error whether the client retries it", () => {
    const rows = [...readPage("docs/errors-and-limits.md").matchAll(/^\| (\d{3}) \|.*\| (yes|no) \|$/gm)]
    assert.isAbove(rows.length, 10)
    for (const [row, status, retries] of rows) {
      assert.strictEqual(retries === "yes", isRetryableStatus(Number(status)), row)
    }
  })
})
