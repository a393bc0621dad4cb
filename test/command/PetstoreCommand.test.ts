import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { once } from "node:events"
import { readFileSync, writeFileSync } from "node:fs"
import { createServer } from "node:https"
import { join } from "node:path"
import { withChecksum } from "../../src/api/Secrets.ts"
import { printable } from "../../src/command/KeyOutput.ts"
import * as Certificates from "../support/Certificates.ts"
import { runCommand } from "../support/CommandRun.ts"
import { serve } from "../support/Process.ts"
import { temporaryDirectory } from "../support/Temporary.ts"

type Row = readonly [line: string, stdout: RegExp, stderr: RegExp]

const onlyEnterprise = /^.*: cannot be set on plan free: only enterprise has custom limits\n$/

/** Command lines by their exit code. */
const lines: Readonly<Record<string, ReadonlyArray<Row>>> = {
  "2 and prints the error in its first line": [
    ["keys issue --name a --plan gold", /^$/, /--plan: "gold"\. Expected: "free" \| "pro"/],
    ["keys issue --name a\nb", /^$/, /--name: .*no control characters/s],
    ["keys issue --name a --per-minute 0", /^$/, /--per-minute: "0".*between 1 and 2147483647/s],
    ["keys issue --name a --expires-at soon", /^$/, /--expires-at: "soon".*a time like 2030-12-31T00:00:00Z/s],
    ["keys issue --name ", /^$/, /--name\. Expected a name of 1 to 255 characters$/m],
    ["keys issue --name a --per-day 1k", /^$/, /--per-day: "1k"\. Expected a whole number$/m],
    ["keys rotate key_a --grace 1w", /^$/, /--grace: "1w"\. Expected a duration such as 24h/m],
    ["keys rotate key_a --grace 31d", /^$/, /--grace: "2678400".*between 0 and 2592000/s],
    ["keys rotate key_a --grace -1", /^$/, /--grace: "-1".*between 0 and 2592000/s],
    ["keys show acme", /^$/, /To find it, run `petstore keys list --search`/],
    ["keys list --limit 0", /^$/, /--limit: "0"\. Expected a number of at least 1/],
    ["keys list --search psk_0", /^$/, /To find a secret's key, run `petstore keys whose`/],
    ["keys lst", /^$/, /Unknown subcommand "lst" .* Did you mean this\? list\nSee `petstore keys --help`\.\n$/]
  ],
  "2 and prints one line for values that contradict each other": [
    ["keys issue --name a --plan enterprise", /^$/, /^--per-minute and --per-day: required on plan enterprise\n$/],
    ["keys issue --name a --per-minute 1 --per-day 1", /^$/, onlyEnterprise],
    ["keys update key_a", /^$/, /^Nothing to change: name at least one flag, such as --plan pro\n$/],
    ["keys update key_a --per-minute 1", /^$/, /^--per-minute and --per-day: use both or neither\n$/]
  ],
  "0 and prints help and a completion script": [
    ["", /SUBCOMMANDS/, /^$/],
    ["keys", /SUBCOMMANDS/, /^$/],
    ["keys issue --help", /--plan .*A new key has plan free.*free, pro, business, enterprise/, /^$/],
    ["--completions bash", /whose/, /^$/]
  ]
}

const noResponse = /1\]?:1\/.*\. Start the service, or set PETSTORE_ADMIN_URL to the/
const noAddress = /^PETSTORE_ADMIN_URL: expected an address like http:\/\/127\.0\.0\.1:9090, without a path\n$/
const invalidAddresses = ["ftp://a:1", "localhost:1/admin", "http://a:1?x=1", "http://u:secret@a", "localhost:99999"]

/** Addresses by the exit code. Nothing listens at them. */
const addresses: Readonly<Record<string, readonly [stderr: RegExp, addresses: ReadonlyArray<string>]>> = {
  "1 if no service responds": [noResponse, ["127.0.0.1:1", "HTTP://127.0.0.1:1/", "[::1]:1", ""]],
  "2 for an invalid address": [noAddress, invalidAddresses]
}

const invalidLimits =
  `{"code":"invalid_request","message":"Invalid request: body.limits: required on plan enterprise.","status":400}`
const ofFlags = /^Invalid request: --per-minute and --per-day: required on plan enterprise\.\n$/

/** Responses of a service, and what the command prints for them. */
const responses: ReadonlyArray<readonly [name: string, line: string, status: number, body: string, stderr: RegExp]> = [
  ["a new key of another version", "keys issue --name a", 201, "{}", /^The service issued a key, .* another version/],
  ["a change of another version", "keys enable key_a", 200, "{}", /^The service carried out the request, .* keys log`/],
  ["an error about a field that is a flag", "keys update key_a --plan enterprise", 400, invalidLimits, ofFlags]
]

/** Command lines, and the only request that each sends. Its parameters are in alphabetical order. */
const requests: ReadonlyArray<readonly [line: string, url: RegExp]> = [
  ["whose", /^\/admin\/keys\?secretHash=[0-9a-f]{64}$/],
  ["log", /^\/admin\/audit\?limit=100$/],
  [
    "log key_a --since 2030-01-01 --until 2031-01-01 --operator alice --action ban --limit 3",
    /^\/admin\/audit\?action=ban&key=key_a&limit=3&operator=alice&since=2030-01-01T[^&,]+&until=2031-01-01T[^&,]+$/
  ],
  [
    "list --plan pro --state banned --order newest --search acme --limit 3",
    /^\/admin\/keys\?limit=3&order=newest&plan=pro&search=acme&state=banned$/
  ],
  ["top --window day --by banned --limit 3", /^\/admin\/usage\?by=banned&limit=3&window=day$/]
]

/** Command lines on a terminal, the answer of the operator if there is a question, and how many requests follow. */
const confirmations: ReadonlyArray<readonly [line: string, answer: string, requests: number]> = [
  ["revoke key_a", "n", 0],
  ["revoke key_a", "y", 1],
  ["revoke key_a --yes", "n", 1],
  ["rotate key_a", "n", 0],
  ["rotate key_a", "y", 1],
  ["rotate key_a --yes", "n", 1],
  ["rotate key_a --grace 1h", "n", 1]
]

const entry = { at: "2026-01-02T03:04:05.678Z", action: "revoke", keyId: "key_a", keyName: null, operator: null }
const entries = Array.from({ length: 100 }, (_, id) => ({ ...entry, id, address: null, before: null, after: null }))

const run = (address: string, outcome: string, ...[line, stdout, stderr]: Row) =>
  Effect.gen(function*() {
    const env = { ADMIN_TOKEN: "adm_0123456789ab", PETSTORE_ADMIN_URL: address, MANAGEMENT_PORT: "1" }
    const result = yield* runCommand(env, line === "" ? [] : line.split(" "))
    assert.strictEqual(result.code, Number(outcome[0]))
    assert.match(result.stdout, stdout)
    assert.match(result.stderr, stderr)
  })

describe("The petstore command", () => {
  it("prints \\ufffd for characters of a name that would move the cursor or reorder a line", () => {
    assert.strictEqual(printable("a\u001b\u2028\u202e\u2066\u200fb"), `a${"\ufffd".repeat(5)}b`)
  })
  describe.each(Object.entries(lines))("exits with %s", (outcome, rows) => {
    it.effect.each(rows)("%s", (row) => run("127.0.0.1:1", outcome, ...row))
  })
  it.effect.each(requests)("requests only what `keys %s` needs", ([line, expected]) =>
    Effect.gen(function*() {
      const urls: Array<string> = []
      const address = yield* serve(({ url = "" }, response) => {
        const { pathname, searchParams } = new URL(url, "http://service")
        searchParams.sort()
        urls.push(`${pathname}?${searchParams.toString()}`)
        // The log has a next page, which no command needs.
        const isLog = pathname === "/admin/audit"
        const link = isLog ? { link: `</admin/audit?cursor=MSAx>; rel="next"` } : {}
        response.writeHead(200, { "content-type": "application/json", ...link })
        response.end(JSON.stringify(isLog ? entries : []))
      })
      const env = { ADMIN_TOKEN: "adm_0123456789ab", PETSTORE_ADMIN_URL: address }
      yield* runCommand(env, ["keys", ...line.split(" ")], withChecksum("0".repeat(32)))
      assert.match(urls.join(), expected)
    }))
  it.effect.each(confirmations)(
    "asks on a terminal before it ends a secret: `keys %s`, answered with %s, sends %i requests",
    ([line, answer, sent]) =>
      Effect.gen(function*() {
        let requests = 0
        const address = yield* serve((_request, response) => {
          requests++
          response.writeHead(204).end()
        })
        const env = { ADMIN_TOKEN: "adm_0123456789ab", PETSTORE_ADMIN_URL: address }
        const { stderr } = yield* runCommand(env, ["keys", ...line.split(" ")], "", answer)
        assert.deepStrictEqual([requests, stderr.includes("Nothing was changed.")], [sent, sent === 0])
      })
  )
  it.effect("revokes each key of the file of --from once, and may find that it is revoked or missing", () =>
    Effect.gen(function*() {
      const file = join(yield* temporaryDirectory, "revoked.txt")
      writeFileSync(file, "ID     NAME\nkey_a  Acme Ltd\n\n  key_b\nkey_c\nkey_a\n")
      const statuses: Readonly<Record<string, number>> = { key_a: 204, key_b: 409, key_c: 404 }
      const codes: Readonly<Record<number, string>> = { 404: "not_found", 409: "conflict" }
      const requests: Array<string> = []
      const address = yield* serve(({ method, url = "" }, response) => {
        requests.push(`${method} ${url}`)
        const status = statuses[url.slice(url.lastIndexOf("/") + 1)] ?? 500
        response.writeHead(status, { "content-type": "application/json" })
        response.end(status === 204 ? "" : JSON.stringify({ code: codes[status], message: "No.", status }))
      })
      const env = { ADMIN_TOKEN: "adm_0123456789ab", PETSTORE_ADMIN_URL: address }
      const revoke = (answer?: string, ...flags: ReadonlyArray<string>) =>
        runCommand(env, ["keys", "revoke", "--from", file, ...flags], "", answer)
      assert.strictEqual((yield* revoke("n")).stderr.includes("Nothing was changed."), true)
      assert.isEmpty(requests)
      const stdout = "key_a is revoked.\nkey_b was revoked before.\nkey_c does not exist.\n" +
        "1 revoked, 1 before, 1 do not exist.\n"
      assert.deepStrictEqual(yield* revoke("n", "--yes"), { code: 0, stdout, stderr: "" })
      assert.deepStrictEqual(requests, ["a", "b", "c"].map((id) => `DELETE /admin/keys/key_${id}`))
      writeFileSync(file, "key_a\npsk_b\n")
      const { code, stderr } = yield* revoke(undefined, "--yes")
      assert.deepStrictEqual([code, requests.length], [2, 3])
      assert.match(stderr, /--from: expected one id of a key \(key_…\) a line, not "psk_b"/)
    }))
  it.effect.each(responses)("exits with 1 after %s", ([, line, status, body, stderr]) =>
    Effect.gen(function*() {
      const address = yield* serve((_request, response) => {
        response.writeHead(status, { "content-type": "application/json", "x-request-id": "7" }).end(body)
      })
      yield* run(address, "1", line, /^$/, stderr)
    }))
  describe.each(Object.entries(addresses))("exits with %s", (outcome, [stderr, each]) => {
    it.effect.each(each)("%s", (address) => run(address, outcome, "keys issue --name a", /^$/, stderr))
  })
  it.effect.skipIf(!Certificates.isInstalled)(
    "names NODE_EXTRA_CA_CERTS for a server whose authority is unknown",
    () =>
      Effect.gen(function*() {
        const { cert, key } = (yield* Certificates.makeAuthority).issue("localhost", { altNames: "IP:127.0.0.1" })
        const server = createServer({ cert: readFileSync(cert), key: readFileSync(key) })
        yield* Effect.addFinalizer(() => Effect.sync(() => server.close()))
        yield* Effect.promise(() => once(server.listen(0, "127.0.0.1"), "listening"))
        const address = server.address()
        const port = address === null || typeof address === "string" ? assert.fail() : address.port
        const remedy = /^GET https:.* Set NODE_EXTRA_CA_CERTS to a file with the certificate of the authority .*\n$/
        yield* run(`https://127.0.0.1:${port}`, "1", "keys list", /^$/, remedy)
      })
  )
})
