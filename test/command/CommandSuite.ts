/** The tests of the `petstore keys` command beside a service: in memory, and as a process on the embedded database. */
import { assert, type Vitest } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { writeFileSync } from "node:fs"
import { withChecksum } from "../../src/api/Secrets.ts"
import { type Environment, runCommand } from "../support/CommandRun.ts"
import { send, serve, until, untilTrue } from "../support/Process.ts"

/** A running service, whose admin token is in the file `admin-token` of `DATA_DIR`. */
interface Running {
  /** The URL of the API port. */
  readonly address: string
  readonly env: { readonly DATA_DIR: string; readonly PETSTORE_ADMIN_URL: string }
}

const commandsBeside = ({ address, env }: Running) => {
  /** Returns what the command prints. It must succeed. */
  const text = Effect.fnUntraced(function*(line: string, input = "") {
    const { code, stderr, stdout } = yield* runCommand(env, ["keys", ...line.split(" ")], input)
    assert.deepStrictEqual({ code, stderr }, { code: 0, stderr: "" })
    return stdout
  })
  const json = (line: string, input?: string) =>
    Effect.map(text(`${line} --json`, input), (output) => JSON.parse(output))
  /** Asserts that the command fails, and prints only an error. Returns the error. */
  const fail = Effect.fnUntraced(function*(line: string, error: string, own: Environment = {}, input = "", code = 1) {
    const { stderr, ...others } = yield* runCommand({ ...env, ...own }, ["keys", ...line.split(" ")], input)
    assert.deepStrictEqual(others, { code, stdout: "" })
    assert.include(stderr, error)
    return stderr
  })
  const listPets = (key: string) => Effect.map(send(`${address}/v1/pets`, key), ({ status }) => status)
  return { address, env, text, json, fail, listPets }
}

/** The service beside which all tests run, and ways to run `petstore keys`. */
export class Service extends Context.Service<Service, ReturnType<typeof commandsBeside>>()("test/command/Service") {
  static readonly layer = <E, R>(start: Effect.Effect<Running, E, R>) =>
    Layer.effect(Service, Effect.map(start, commandsBeside))
}

export const defineCommandTests = (it: Vitest.MethodsNonLive<Service>) => {
  it.effect("issues, shows, changes, rotates, revokes and unbans keys, and prints their audit log", () =>
    Effect.gen(function*() {
      const { fail, json, listPets, text } = yield* Service
      // The counts of an hour and of a day begin with it.
      yield* until(() => Date.now() % 3_600_000 < 3_590_000)
      const limits = "--plan enterprise --per-minute 5 --per-day 7"
      const { id, key } = yield* json(`issue --name big ${limits} --expires-at 2100-01-01`)
      const hammered = /^key {8}(psk_\w{38})$/m.exec(yield* text("issue --name hammered"))?.[1] ?? ""
      assert.strictEqual(yield* listPets(key), 200)
      const { id: rotatedId } = yield* json("issue --name rotated")
      const rotation = yield* text(`rotate ${rotatedId} --grace 3600`)
      const [, endsAt = ""] = /^former {5}psk_…\w{4} ends (\S+), last used never$/m.exec(rotation) ?? []
      assert.approximately(Date.parse(endsAt) - Date.now(), 3_600_000, 60_000)
      assert.notInclude(yield* text(`rotate ${rotatedId}`), "former")

      const head = "ID +STATE +PLAN +MINUTE +DAY +HINT +LAST USED +NAME"
      const row = `${id}  active    enterprise  5 +7 +\\w{4}  \\S+ +big`
      assert.match(yield* text("list --plan enterprise --search BIG"), new RegExp(`^${head}\n${row}\n$`))
      const windows = "minute     1 of 5 used, 4 left until \\S+\nday        1 of 7 used, 6 left until \\S+\n"
      const details = `^version {4}1\n[^]*^banned {5}no\nrequests   within the limits\n${windows}$`
      assert.match(yield* text(`show ${id}`), new RegExp(details, "m"))
      // `--limit` bounds the number of rows.
      assert.lengthOf(yield* json("list --limit 1"), 1)
      assert.containsSubset(yield* json(`show ${id}`), { id, expiresAt: "2100-01-01T00:00:00.000Z", ban: null })

      const changes = "--name bigger --per-minute 9 --per-day 90 --expires-at never"
      const changed = { name: "bigger", limits: { perMinute: 9, perDay: 90 }, expiresAt: null, version: 2 }
      assert.containsSubset(yield* json(`update ${id} ${changes}`), changed)
      const rotated = yield* json(`rotate ${id} --grace 60`)
      const statuses = Effect.forEach([key, rotated.key], listPets)
      assert.deepStrictEqual(yield* statuses, [200, 200])
      assert.match(
        yield* text(`show ${id}`),
        new RegExp(`^former {5}psk_…${key.slice(-4)} ends 20\\S+, last used `, "m")
      )
      const steps = [
        ["end-former", `Only the current secret of ${id} works.`, 200],
        ["disable", `${id} is disabled.`, 401],
        ["enable", `${id} is enabled.`, 200]
      ] as const
      for (const [command, printed, status] of steps) {
        assert.strictEqual(yield* text(`${command} ${id}`), `${printed}\n`)
        assert.deepStrictEqual(yield* statuses, [401, status])
        if (status === 401) assert.containsSubset(yield* json("list --state disabled"), [{ id }])
      }
      // The only process of an embedded database needs no Redis.
      assert.strictEqual(yield* text(`unban ${id}`), `${id} was not banned.\n`)
      for (const change of ["update --name a", "rotate", "end-former", "disable", "enable", "revoke"]) {
        yield* fail(`${change} --if-version 1 ${id}`, "has version 6")
      }
      assert.strictEqual(yield* text(`revoke ${id} --if-version 6`), `${id} is revoked.\n`)
      assert.deepStrictEqual(yield* statuses, [401, 401])

      yield* Effect.replicateEffect(listPets(hammered), 120)
      const [{ id: banned }] = yield* json("list --state banned")
      // Each process writes its counts every two seconds.
      yield* untilTrue(Effect.map(json("top --window day --by rejected"), ([first]) => first?.rejected === 59))
      const usage = /^HOUR +ALLOWED +REJECTED +BANNED\n20\S+Z +\d[^]*\n\nMINUTE .*\n20\S+Z +\d/
      assert.match(yield* text(`usage ${banned}`), usage)
      assert.hasAllKeys(yield* json(`usage ${banned}`), ["minutes", "hours"])
      assert.match(
        yield* text(`show ${banned}`),
        /^banned {5}until 20\S+Z\nrequests {3}rejected until 20\S+Z \(ban\)$/m
      )
      const topRow = `${banned}  free        60          59          1           hammered`
      assert.include(yield* text("top --by rejected --limit 1"), `NAME\n${topRow}\n`)
      assert.include(yield* text(`unban ${banned}`), `Lifted the ban on ${banned}, which would have lasted until 20`)

      const actions = (yield* json(`log ${id}`)).map(({ action }: { readonly action: string }) => action)
      assert.deepStrictEqual(actions, ["revoke", "update", "update", "end-former", "rotate", "update", "issue"])
      assert.containsSubset(yield* json("log --limit 1000"), [{ keyId: id }, { keyId: banned }])
      const rotations = yield* json("log --operator admin --action rotate")
      assert.containsSubset(rotations, [{ keyId: id, keyName: "bigger" }, { keyId: rotatedId }])
      assert.isTrue(rotations.every(({ action }: { readonly action: string }) => action === "rotate"))
      const log = yield* text(`log ${id}`)
      assert.match(log, /^\S+Z {2}update {6}key_\w+ {2}admin {5}127\.0\.0\.1 +bigger +name: big → bigger/m)
      assert.notInclude(log, "psk_")
    }))

  it.effect("revokes the keys of a list, audited, says what became of each, and can be repeated", () =>
    Effect.gen(function*() {
      const { env, fail, json, listPets, text } = yield* Service
      const issued = yield* Effect.forEach(["a", "b"], (name) => json(`issue --name listed-${name}`))
      const file = `${env.DATA_DIR}/ids`
      // The output of `keys list` is a list of ids too.
      writeFileSync(file, `ID  STATE\n${issued[0].id}  active\n\n${issued[1].id}\r\nkey_none\n`)
      const ids = [...issued.map(({ id }) => id), "key_none"]
      const printed = (outcomes: ReadonlyArray<string>, counts: string) =>
        `${ids.map((id, index) => `${id} ${outcomes[index]}.\n`).join("")}${counts} do not exist.\n`
      const first = printed(["is revoked", "is revoked", "does not exist"], "2 revoked, 0 before, 1")
      assert.strictEqual(yield* text(`revoke --from ${file}`), first)
      assert.deepStrictEqual(yield* Effect.forEach(issued, ({ key }) => listPets(key)), [401, 401])
      const again = printed(["was revoked before", "was revoked before", "does not exist"], "0 revoked, 2 before, 1")
      assert.strictEqual(yield* text(`revoke --from ${file}`), again)
      for (const { id } of issued) {
        assert.containsSubset(yield* json(`log ${id} --since 1h --action revoke`), [{ keyId: id, operator: "admin" }])
      }
      assert.deepStrictEqual(yield* json("log --until 1h"), [])
      yield* fail(`revoke ${ids[0]} --from ${file}`, "Name one key, or a file with --from", {}, "", 2)
      yield* fail("revoke", "Name one key, or a file with --from", {}, "", 2)
      writeFileSync(file, "psk_secret\n")
      yield* fail(`revoke --from ${file}`, "--from: expected one id of a key (key_…) a line", {}, "", 2)
    }))

  it.effect("prints one line for a failure, and exits with 1", () =>
    Effect.gen(function*() {
      const { address, env, fail } = yield* Service
      const setUrl = "set PETSTORE_ADMIN_URL to the address of its management port."
      const other = yield* serve((_request, response) => response.end("another server"))
      const failures: ReadonlyArray<readonly [line: string, error: string, own?: Environment]> = [
        ["issue --name a --expires-at 2020-01-01", "--expires-at: expected a time in the future"],
        ["revoke key_none", "There is no key key_none."],
        ["log key_none", "There is no key key_none."],
        ["list", "The admin token is wrong. The command takes it from", { ADMIN_TOKEN: "adm_wrong_0123456" }],
        ["list", `. Start the service, or ${setUrl}`, { PETSTORE_ADMIN_URL: address }],
        ["revoke key_a", setUrl, { PETSTORE_ADMIN_URL: other }],
        ["list", "There is no admin token", { DATA_DIR: `${env.DATA_DIR}/none`, PETSTORE_ADMIN_URL: "" }]
      ]
      for (const [line, error, own] of failures) assert.match(yield* fail(line, error, own), /^.*\n$/)
    }))

  it.effect("prints the entries of a key that was deleted in SQL", () =>
    Effect.gen(function*() {
      const entry = { id: 1, at: "2026-01-02T03:04:05.678Z", action: "revoke", keyId: "key_gone", keyName: null }
      const entries = [{ ...entry, operator: "alice", address: null, before: null, after: null }]
      const PETSTORE_ADMIN_URL = yield* serve(({ url = "" }, response) => {
        const found = url.startsWith("/admin/audit?")
        const body = found ? entries : { code: "not_found", message: "There is no key.", status: 404 }
        response.writeHead(found ? 200 : 404, { "content-type": "application/json" }).end(JSON.stringify(body))
      })
      const { code, stdout } = yield* runCommand({ PETSTORE_ADMIN_URL, ADMIN_TOKEN: "adm_0123456789ab" }, [
        "keys",
        "log",
        "key_gone"
      ])
      assert.strictEqual(code, 0)
      assert.match(stdout, /^2026-01-02T03:04:05.678Z {2}revoke +key_gone +alice/m)
    }))

  it.effect("finds the key of a secret, and prints whether it works", () =>
    Effect.gen(function*() {
      const { fail, json, text } = yield* Service
      const first = yield* json("issue --name leaky")
      const { id } = first
      const hint = (secret: string) => `The secret psk_…${secret.slice(-4)}`
      const time = "20\\S+Z"
      const says = Effect.fnUntraced(function*(secret: string, words: string) {
        assert.match(yield* text("whose", secret), new RegExp(`^${hint(secret)} ${words}\\.\n\nid {9}${id}\n`))
      })
      yield* says(first.key, `works: it is the current secret of ${id}`)
      assert.include(yield* text("whose", `Authorization: Bearer ${first.key}\n`), `${hint(first.key)} works`)
      yield* text(`disable ${id}`)
      yield* says(first.key, `does not work: it is the current secret of ${id}, which is disabled`)
      yield* text(`enable ${id}`)

      const second = yield* json(`rotate ${id} --grace 3600`)
      yield* says(first.key, `works until ${time}: it is a former secret of ${id}`)
      const third = yield* json(`rotate ${id} --grace 0`)
      yield* says(second.key, `stopped working at ${time}: it is a former secret of ${id}, which is active`)
      yield* text(`revoke ${id}`)
      const { revokedAt } = yield* json(`show ${id}`)
      yield* says(third.key, `stopped working at ${revokedAt}: it is the current secret of ${id}, which is revoked`)
      assert.containsSubset(yield* json("whose", third.key), { id, secret: { works: false, endsAt: null } })

      yield* fail("whose", "No key has this secret.\n", {}, withChecksum("0".repeat(32)))
      const mistyped = first.key.slice(0, -1) + (first.key.endsWith("0") ? "1" : "0")
      for (const input of [mistyped, "", "x".repeat(1_000_000)]) {
        assert.notMatch(yield* fail("whose", "The input has no complete secret", {}, input, 2), /psk_\w/)
      }
    }))
}
