import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Layer } from "effect"
import { TestClock } from "effect/testing"
import { createHash } from "node:crypto"
import { once } from "node:events"
import { readFileSync, writeFileSync } from "node:fs"
import { createServer } from "node:https"
import { join } from "node:path"
import { text } from "node:stream/consumers"
import { withChecksum } from "../../src/api/Secrets.ts"
import { exitCodeOf } from "../../src/command/CommandFailure.ts"
import { printable } from "../../src/command/KeyOutput.ts"
import { newestVersion } from "../../src/database/Database.ts"
import * as Certificates from "../support/Certificates.ts"
import { runCommand } from "../support/CommandRun.ts"
import { databaseAt, hasServer, temporaryDatabaseUrl } from "../support/Databases.ts"
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

/** Command lines, and the first request that each sends. */
const changes: ReadonlyArray<readonly [line: string, request: string]> = [
  ["issue --name acme", `POST /admin/keys {"name":"acme","plan":"free"}`],
  [
    "issue --name big --plan enterprise --per-minute 5000 --per-day 1000000 --expires-at 2030-12-31",
    `POST /admin/keys {"name":"big","plan":"enterprise","limits":{"perMinute":5000,"perDay":1000000},` +
    `"expiresAt":"2030-12-31T00:00:00.000Z"}`
  ],
  ["update key_a --plan business", `PATCH /admin/keys/key_a {"plan":"business"}`],
  ["update key_a --name b --expires-at never", `PATCH /admin/keys/key_a {"name":"b","expiresAt":null}`],
  ["rotate key_a", `POST /admin/keys/key_a/rotate {"gracePeriodSeconds":0}`],
  ["rotate key_a --grace 24h", `POST /admin/keys/key_a/rotate {"gracePeriodSeconds":86400}`],
  ["rotate key_a --grace 3m", `POST /admin/keys/key_a/rotate {"gracePeriodSeconds":180}`],
  ["rotate key_a --grace 30d", `POST /admin/keys/key_a/rotate {"gracePeriodSeconds":2592000}`],
  ["end-former key_a", "DELETE /admin/keys/key_a/former-secrets "],
  ["disable key_a", `PATCH /admin/keys/key_a {"enabled":false}`],
  ["enable key_a", `PATCH /admin/keys/key_a {"enabled":true}`],
  ["revoke key_a", "DELETE /admin/keys/key_a "],
  ["show key_a", "GET /admin/keys/key_a "],
  ["usage key_a", "GET /admin/keys/key_a/usage "],
  ["top", "GET /admin/usage "],
  ["list", "GET /admin/keys?order=newest&limit=100 "],
  ["log --since 7d", "GET /admin/audit?limit=100&since=2026-01-01T00%3A00%3A00.000Z "],
  ["log --since 90s", "GET /admin/audit?limit=100&since=2026-01-07T23%3A58%3A30.000Z "]
]

/** A key as the management port shows it, with a name that would reorder a line. */
const details = {
  id: "key_a",
  version: 1,
  name: "a\u202eb",
  hint: "wxyz",
  plan: "free",
  limits: { perMinute: 60, perDay: 1_000 },
  enabled: true,
  createdAt: "2026-01-02T03:04:05.678Z",
  expiresAt: null,
  revokedAt: null,
  lastUsedAt: "2026-01-02T03:05:00.000Z",
  ban: null,
  counting: "single",
  usage: {
    minute: { limit: 60, remaining: 60, resetAt: "2026-01-02T03:06:00.000Z" },
    day: { limit: 1_000, remaining: 0, resetAt: "2026-01-03T03:04:05.678Z" }
  },
  formerSecrets: [
    { hint: "abcd", endsAt: "2026-01-04T03:04:05.678Z", lastUsedAt: "2026-01-02T03:04:00.000Z" },
    { endsAt: "2026-01-05T03:04:05.678Z", lastUsedAt: null }
  ]
}

const shown = `id         key_a
name       a\ufffdb
secret     psk_…wxyz
version    1
plan       free (60 a minute, 1000 a day)
created    2026-01-02T03:04:05.678Z
expires    never
revoked    never
last used  2026-01-02T03:05Z
state      active
former     psk_…abcd ends 2026-01-04T03:04:05.678Z, last used 2026-01-02T03:04Z
former     psk_… ends 2026-01-05T03:04:05.678Z, last used never
banned     no
requests   rejected until 2026-01-03T03:04:05.678Z (day)
minute     0 of 60 used, 60 left until 2026-01-02T03:06:00.000Z
day        1000 of 1000 used, 0 left until 2026-01-03T03:04:05.678Z
`

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

const serveJson = (body: unknown) =>
  serve((_request, response) => {
    response.setHeader("content-type", "application/json").end(JSON.stringify(body))
  })

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
  it.effect.each(changes)("sends for `keys %s` the request %s", ([line, expected]) =>
    Effect.gen(function*() {
      yield* TestClock.setTime(Date.parse("2026-01-08"))
      const sent: Array<string> = []
      const address = yield* serve(async (request, response) => {
        sent.push(`${request.method} ${request.url} ${await text(request)}`)
        response.end()
      })
      yield* runCommand({ ADMIN_TOKEN: "adm_0123456789ab", PETSTORE_ADMIN_URL: address }, ["keys", ...line.split(" ")])
      assert.strictEqual(sent[0], expected)
    }))
  it.effect("shows a key with the last four characters of each former secret, and its last uses to the minute", () =>
    Effect.gen(function*() {
      const address = yield* serveJson(details)
      const env = { ADMIN_TOKEN: "adm_0123456789ab", PETSTORE_ADMIN_URL: address }
      assert.strictEqual((yield* runCommand(env, ["keys", "show", "key_a"])).stdout, shown)
    }))
  it.effect("prints the response of the management port with --json", () =>
    Effect.gen(function*() {
      const address = yield* serveJson(details)
      const env = { ADMIN_TOKEN: "adm_0123456789ab", PETSTORE_ADMIN_URL: address }
      const { stdout } = yield* runCommand(env, ["keys", "show", "key_a", "--json"])
      assert.deepStrictEqual(JSON.parse(stdout), details)
    }))
  it.effect("prints a list with the ids first, under a heading, and \ufffd for characters that would reorder a line", () =>
    Effect.gen(function*() {
      const address = yield* serveJson([details])
      const env = { ADMIN_TOKEN: "adm_0123456789ab", PETSTORE_ADMIN_URL: address }
      const lines = (yield* runCommand(env, ["keys", "list"])).stdout.split("\n")
      assert.deepStrictEqual(lines.map((line) => line.split(/ {2,}/)), [
        ["ID", "STATE", "PLAN", "MINUTE", "DAY", "HINT", "LAST USED", "NAME"],
        ["key_a", "active", "free", "60", "1000", "wxyz", "2026-01-02T03:05Z", "a\ufffdb"],
        [""]
      ])
    }))
  const partly = " Redis was not used: this applies only to the process that responded."
  it.effect.each([["shared", ""], ["single", ""], ["own", partly], ["fallback", partly]])(
    "says what an unban applies to, for limits that are counted as `%s`",
    ([counting, end]) =>
      Effect.gen(function*() {
        const ban = { until: "2026-01-02T03:04:05.678Z" }
        const address = yield* serve(({ method }, response) => {
          if (method === "DELETE") response.writeHead(204).end()
          else response.setHeader("content-type", "application/json").end(JSON.stringify({ ...details, ban, counting }))
        })
        const lifted = `Lifted the ban on key_a, which would have lasted until ${ban.until}.${end}\n`
        const env = { ADMIN_TOKEN: "adm_0123456789ab", PETSTORE_ADMIN_URL: address }
        assert.strictEqual((yield* runCommand(env, ["keys", "unban", "key_a"])).stdout, lifted)
      })
  )
  it.effect("follows the pages of the log up to --limit", () =>
    Effect.gen(function*() {
      const urls: Array<string> = []
      const address = yield* serve(({ url = "" }, response) => {
        urls.push(url)
        const link = `</admin/audit?limit=100&cursor=MSAx>; rel="next"`
        response.writeHead(200, { "content-type": "application/json", link }).end(JSON.stringify(entries))
      })
      const env = { ADMIN_TOKEN: "adm_0123456789ab", PETSTORE_ADMIN_URL: address }
      const { stdout } = yield* runCommand(env, ["keys", "log", "--limit", "101"])
      assert.deepStrictEqual([urls.length, stdout.trim().split("\n").length], [2, 1 + 101])
    }))
  it.effect("lists all keys without --limit", () =>
    Effect.gen(function*() {
      const address = yield* serve(({ url = "" }, response) => {
        const link = `</admin/keys?cursor=MSBrZXlfYQ>; rel="next"`
        const headers = { "content-type": "application/json", ...!url.includes("cursor") && { link } }
        response.writeHead(200, headers).end(JSON.stringify(Array.from({ length: 100 }, () => details)))
      })
      const env = { ADMIN_TOKEN: "adm_0123456789ab", PETSTORE_ADMIN_URL: address }
      const { stdout } = yield* runCommand(env, ["keys", "list"])
      assert.lengthOf(stdout.trim().split("\n"), 1 + 200)
    }))
  it.effect.each([["n", 0, 1], ["y", 2, 0]] as const)(
    "asks on a terminal before it revokes the keys in a file: answered with %s, it sends %i requests",
    ([answer, sent, exitCode]) =>
      Effect.gen(function*() {
        let requests = 0
        const address = yield* serve((_request, response) => {
          requests++
          response.writeHead(204).end()
        })
        const file = `${yield* temporaryDirectory}/ids`
        writeFileSync(file, "key_a\nkey_b\n")
        const env = { ADMIN_TOKEN: "adm_0123456789ab", PETSTORE_ADMIN_URL: address }
        const { code } = yield* runCommand(env, ["keys", "revoke", "--from", file], "", answer)
        assert.deepStrictEqual([requests, code], [sent, exitCode])
      })
  )
  it.effect("asks on a terminal for the secret of `keys whose`, and does not read standard input there", () =>
    Effect.gen(function*() {
      const env = { ADMIN_TOKEN: "adm_0123456789ab", PETSTORE_ADMIN_URL: "http://127.0.0.1:1" }
      const { code, stderr } = yield* runCommand(env, ["keys", "whose"], withChecksum("0".repeat(32)), "enter")
      assert.strictEqual(code, 2)
      assert.include(stderr, "The input has no complete secret")
    }))
  it.effect.each(["migrate", "import"])(
    "exits with 1 if `petstore %s` has no DATABASE_URL",
    (command) =>
      Effect.gen(function*() {
        const { code, stderr } = yield* runCommand({ DATA_DIR: "/none" }, [command])
        assert.strictEqual(code, 1)
        assert.match(stderr, /^DATABASE_URL: set it/)
      })
  )
  it.live.skipIf(!hasServer)(
    "migrates an empty database, also with MIGRATE=off, and says its version: `petstore migrate`",
    () =>
      Effect.gen(function*() {
        const env = { DATABASE_URL: yield* temporaryDatabaseUrl, MIGRATE: "off" }
        const { code, stdout } = yield* runCommand(env, ["migrate"])
        assert.deepStrictEqual([code, stdout], [0, `The database has schema version ${newestVersion}.\n`])
        yield* Layer.build(Layer.fresh(databaseAt(env.DATABASE_URL, env)))
      })
  )
  it.effect("names in its help each variable that it reads", () =>
    Effect.gen(function*() {
      const { stdout } = yield* runCommand({}, ["keys", "--help"])
      for (const name of ["PETSTORE_ADMIN_URL", "MANAGEMENT_PORT", "ADMIN_TOKEN", "DATA_DIR", "NODE_EXTRA_CA_CERTS"]) {
        assert.include(stdout, name)
      }
    }))
  it("exits with 130 after an interruption", () => {
    assert.strictEqual(exitCodeOf(Exit.interrupt()), 130)
  })
  it.effect("sends `keys whose` the SHA-256 of the secret in its input, and nothing else of it", () =>
    Effect.gen(function*() {
      const secret = withChecksum("0".repeat(32))
      const sent: Array<string> = []
      const address = yield* serve((request, response) => {
        sent.push(`${request.url} ${request.rawHeaders.join(" ")}`)
        response.setHeader("content-type", "application/json").end("[]")
      })
      const env = { ADMIN_TOKEN: "adm_0123456789ab", PETSTORE_ADMIN_URL: address }
      yield* runCommand(env, ["keys", "whose"], `secret: ${secret}\n`)
      assert.include(sent.join(), `secretHash=${createHash("sha256").update(secret).digest("hex")} `)
      assert.notInclude(sent.join(), secret.slice(4))
    }))
  it.effect("says with `keys whose` that a secret stopped working when the first of its ends came", () =>
    Effect.gen(function*() {
      const secret = withChecksum("0".repeat(32))
      const [early, late] = ["2026-01-02T03:04:05.678Z", "2026-01-03T03:04:05.678Z"]
      const { counting: _, formerSecrets: _former, usage: _usage, ...key } = details
      for (const [expiresAt, endsAt] of [[early, null], [early, late], [late, early]]) {
        const address = yield* serveJson([{ ...key, expiresAt, secret: { works: false, endsAt } }])
        const env = { ADMIN_TOKEN: "adm_0123456789ab", PETSTORE_ADMIN_URL: address }
        const { stdout } = yield* Effect.andThen(
          TestClock.setTime(Date.parse("2026-01-08T00:00:00Z")),
          runCommand(env, ["keys", "whose"], secret)
        )
        assert.include(stdout, ` stopped working at ${early}: `)
      }
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
        const { code, stderr } = yield* runCommand(env, ["keys", ...line.split(" ")], "", answer)
        assert.deepStrictEqual([requests, stderr.includes("Nothing was changed.")], [sent, sent === 0])
        if (sent === 0) assert.strictEqual(code, 1)
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
      const listed = readFileSync(file, "utf8")
      for (const ids of ["key_a\n", listed]) {
        writeFileSync(file, ids)
        assert.include((yield* revoke("n")).stderr, "Nothing was changed.")
      }
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
