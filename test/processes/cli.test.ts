/** The `petstore` command beside a running service on the embedded database. */
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer, Schedule } from "effect"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { fileURLToPath } from "node:url"
import { withChecksum } from "../../src/api/SecretForm.ts"
import { type Environment, runCommand } from "../support/CommandRun.ts"
import { dataDirectory } from "../support/Databases.ts"
import { compileCache, type Running, send, serve, start, until } from "../support/Process.ts"

const cli = fileURLToPath(new URL("../../src/cli.ts", import.meta.url))

/** Runs `petstore keys` with `input` on standard input. */
const run = (env: Environment, args: ReadonlyArray<string>, input = "") => runCommand(env, ["keys", ...args], input)

/** Runs `petstore keys`, which must succeed, and returns its output: a text, or the value of its JSON. */
const runText = Effect.fnUntraced(function*(env: Environment, line: string) {
  const { code, stderr, stdout } = yield* run(env, line.split(" "))
  assert.deepStrictEqual({ code, stderr }, { code: 0, stderr: "" })
  return stdout
})
const runJson = (env: Environment, line: string) =>
  Effect.map(runText(env, `${line} --json`), (output) => JSON.parse(output))

/** Runs `petstore keys` on a terminal, which `script` of util-linux opens. */
const openTerminal = Effect.fnUntraced(function*(args: string, env: Environment) {
  const line = `stty cols 110 rows 30; exec ${process.execPath} ${cli} keys ${args}`
  const own = { PATH: process.env.PATH, SHELL: "/bin/sh", TERM: "xterm-256color", ...compileCache, ...env }
  const child = spawn("script", ["-qefc", line, "/dev/null"], { env: own })
  yield* Effect.addFinalizer(() => Effect.sync(() => child.kill("SIGKILL")))
  let output = ""
  child.stdout.on("data", (chunk: Buffer) => {
    output += chunk.toString()
  })
  const closed = once(child, "close")
  return {
    type: (text: string) => child.stdin.write(text),
    waitFor: (pattern: RegExp) => until(() => pattern.test(output)),
    exitCode: Effect.promise(() => closed.then(([code]: ReadonlyArray<unknown>) => code))
  }
})

/** The service beside which all tests run. The command finds the token in its `DATA_DIR`. */
const startService = Effect.gen(function*() {
  const DATA_DIR = yield* dataDirectory
  const service = yield* start({ DATA_DIR, ADMIN_TOKEN: "", LOG_LEVEL: "trace" })
  return { service, env: { DATA_DIR, PETSTORE_ADMIN_URL: service.management } }
})
const Service = Context.Service<Effect.Success<typeof startService>>("test/Service")

/** Returns the status of a request with `key`. */
const listPets = ({ address }: Running, key: string) =>
  Effect.map(send(`${address}/v1/pets`, key), ({ status }) => status)

layer(Layer.effect(Service, startService), { excludeTestServices: true })("The petstore command", (it) => {
  it.effect("issues, shows, changes, rotates, revokes and unbans keys, and prints their log", () =>
    Effect.gen(function*() {
      const { env, service } = yield* Service
      const text = (line: string) => runText(env, line)
      const json = (line: string) => runJson(env, line)
      const limits = "--plan enterprise --per-minute 5 --per-day 7"
      const { id, key } = yield* json(`issue --name big ${limits} --expires-at 2100-01-01`)
      const hammered = /^key {8}(psk_\w{38})$/m.exec(yield* text("issue --name hammered"))?.[1] ?? ""
      assert.strictEqual(yield* listPets(service, key), 200)
      const { id: rotatedId } = yield* json("issue --name rotated")
      const [, end = ""] =
        /^former {5}secret works until (\S+), last used never$/m.exec(yield* text(`rotate ${rotatedId}`)) ?? []
      assert.approximately(Date.parse(end) - Date.now(), 3_600_000, 60_000)
      assert.notInclude(yield* text(`rotate ${rotatedId} --grace 0`), "former")

      const head = "ID +STATE +PLAN +MINUTE +DAY +HINT +LAST USED +NAME"
      const row = `${id}  active    enterprise  5 +7 +\\w{4}  \\S+ +big`
      assert.match(yield* text("list --plan enterprise --search BIG"), new RegExp(`^${head}\n${row}\n$`))
      assert.match(yield* text(`show ${id}`), /^minute {5}4 of 5 left until [^]*^counted {4}without Redis, /m)
      assert.containsSubset(yield* json(`show ${id}`), { id, expiresAt: "2100-01-01T00:00:00.000Z", ban: null })

      const changes = "--name bigger --per-minute 9 --per-day 90 --expires-at never"
      const changed = { name: "bigger", limits: { perMinute: 9, perDay: 90 }, expiresAt: null, version: 2 }
      assert.containsSubset(yield* json(`update ${id} ${changes}`), changed)
      const rotated = yield* json(`rotate ${id} --grace 60`)
      const statuses = Effect.forEach([key, rotated.key], (secret) => listPets(service, secret))
      assert.deepStrictEqual(yield* statuses, [200, 200])
      assert.match(yield* text(`show ${id}`), /^former {5}secret works until 20\S+, last used /m)
      assert.strictEqual(yield* text(`end-former ${id}`), `Only the current secret of ${id} works.\n`)
      assert.deepStrictEqual(yield* statuses, [401, 200])
      assert.strictEqual(yield* text(`disable ${id}`), `${id} is disabled.\n`)
      assert.deepStrictEqual(yield* statuses, [401, 401])
      assert.containsSubset(yield* json("list --state disabled"), [{ id }])
      assert.strictEqual(yield* text(`enable ${id}`), `${id} is enabled.\n`)
      assert.deepStrictEqual(yield* statuses, [401, 200])
      const alone = "This was counted without Redis, by the process that responded."
      assert.strictEqual(yield* text(`unban ${id}`), `${id} was not banned. ${alone}\n`)
      assert.include((yield* run(env, ["revoke", id, "--if-version", "1"])).stderr, "has version 6")
      assert.strictEqual(yield* text(`revoke ${id} --if-version 6`), `${id} is revoked.\n`)
      assert.deepStrictEqual(yield* statuses, [401, 401])

      yield* Effect.replicateEffect(listPets(service, hammered), 120)
      const [{ id: banned }] = yield* json("list --state banned")
      // Each process writes its counts every two seconds.
      yield* Effect.repeat(json("top --window day --by rejected"), {
        until: ([first]: ReadonlyArray<{ readonly rejected: number }>) => first?.rejected === 59,
        schedule: Schedule.spaced("500 millis")
      }).pipe(Effect.timeout("30 seconds"))
      const topRow = `${banned}  free        60          59          1           hammered`
      assert.include(yield* text("top --by rejected --limit 1"), `NAME\n${topRow}\n`)
      assert.include(yield* text(`unban ${banned}`), `The ban of ${banned}, which would have lasted until 20`)

      const actions = (yield* json(`log ${id}`)).map(({ action }: { readonly action: string }) => action)
      assert.deepStrictEqual(actions, ["revoke", "update", "update", "end-former", "rotate", "update", "issue"])
      const keyIds = (yield* json("log --limit 1000")).map(({ keyId }: { readonly keyId: string }) => keyId)
      assert.includeMembers(keyIds, [id, banned])
      const rotations = yield* json("log --operator admin --action rotate")
      assert.containsSubset(rotations, [{ keyId: id, keyName: "bigger" }, { keyId: rotatedId }, { keyId: rotatedId }])
      assert.deepStrictEqual(yield* json("log --operator bob"), [])
      const log = yield* text(`log ${id}`)
      assert.match(log, /^\S+Z {2}update {6}key_\w+ {2}admin {5}127\.0\.0\.1 +bigger +name: big → bigger/m)
      assert.notInclude(log, "psk_")
    }))

  it.effect("prints one line for a failure, and exits with 1", () =>
    Effect.gen(function*() {
      const { env, service } = yield* Service
      const other = yield* serve((_request, response) => response.end("another server"))
      const at = (PETSTORE_ADMIN_URL: string) => ({ ...env, PETSTORE_ADMIN_URL })
      const setUrl = "set PETSTORE_ADMIN_URL to its management port."
      const failures = [
        [env, "issue --name a --expires-at 2020-01-01", "expected an instant in the future"],
        [env, "revoke key_none", "There is no key key_none."],
        [env, "log key_none", "There is no key key_none."],
        [{ ...env, ADMIN_TOKEN: "adm_wrong" }, "list", "The admin token is wrong. The command takes it from"],
        [at(service.address), "list", `. Start the service, or ${setUrl}`],
        [at(other), "revoke key_a", setUrl],
        [{ DATA_DIR: `${env.DATA_DIR}/none` }, "list", "There is no admin token"]
      ] as const
      for (const [environment, line, expected] of failures) {
        const { code, stderr, stdout } = yield* run(environment, line.split(" "))
        assert.deepStrictEqual({ code, stdout }, { code: 1, stdout: "" })
        assert.include(stderr, expected)
        assert.lengthOf(stderr.trim().split("\n"), 1)
      }
    }))

  it.effect("finds the key of a secret without sending the secret, and prints whether it works", () =>
    Effect.gen(function*() {
      const { env, service } = yield* Service
      const json = (line: string) => runJson(env, line)
      const whose = (input: string, ...args: ReadonlyArray<string>) => run(env, ["whose", ...args], input)
      const first = yield* json("issue --name leaky")
      const { id } = first
      const works = `The secret works: it is the current secret of ${id}.\n\nid         ${id}\n`
      assert.include((yield* whose(`Authorization: Bearer ${first.key}\n`)).stdout, works)
      yield* runText(env, `disable ${id}`)
      assert.include((yield* whose(first.key)).stdout, `The secret does not work: ${id} is disabled.`)
      yield* runText(env, `enable ${id}`)

      const second = yield* json(`rotate ${id}`)
      assert.match((yield* whose(first.key)).stdout, /^The secret works until 20\S+Z: it is a former secret of key_/)
      const third = yield* json(`rotate ${id} --grace 0`)
      assert.include((yield* whose(second.key)).stdout, `The secret does not work: it is a former secret of ${id}.`)
      yield* runText(env, `revoke ${id}`)
      assert.include((yield* whose(third.key)).stdout, `The secret does not work: ${id} is revoked.`)
      const found = JSON.parse((yield* whose(third.key, "--json")).stdout)
      assert.containsSubset(found, { id, secret: { works: false, endsAt: null } })

      const unknown = yield* whose(withChecksum("0".repeat(32)))
      assert.deepStrictEqual(unknown, { code: 1, stdout: "", stderr: "No key has this secret.\n" })
      const mistyped = first.key.slice(0, -1) + (first.key.endsWith("0") ? "1" : "0")
      for (const input of [mistyped, "", "x".repeat(1_000_000)]) {
        const { code, stderr, stdout } = yield* whose(input)
        assert.deepStrictEqual({ code, stdout }, { code: 2, stdout: "" })
        assert.include(stderr, "The text has no whole secret")
        assert.notMatch(stderr, /psk_\w/)
      }
      for (const { key } of [first, second, third]) {
        assert.notInclude(service.stdout() + service.stderr(), key.slice(4, 36))
      }
    }))

  it.effect("asks before a revocation on a terminal, and replaces characters that reorder a line", () =>
    Effect.gen(function*() {
      const { env } = yield* Service
      const { id } = yield* runJson(env, "issue --name a\u202Eb")
      for (const [typed, code] of [["n\r", 1], ["\x03", 130]] as const) {
        const terminal = yield* openTerminal(`revoke ${id}`, env)
        yield* terminal.waitFor(/Revoke .*cannot be undone/)
        terminal.type(typed)
        assert.strictEqual(yield* terminal.exitCode, code)
      }
      assert.match(yield* runText(env, `show ${id}`), /^name {7}a\uFFFDb\n[^]*^state {6}active$/m)
      const confirmed = yield* openTerminal(`revoke ${id} --yes`, env)
      assert.strictEqual(yield* confirmed.exitCode, 0)
    }))
})
