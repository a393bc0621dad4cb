/** The `petstore` command beside a running service on the embedded database. */
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { fileURLToPath } from "node:url"
import { withChecksum } from "../../src/api/SecretForm.ts"
import { type Environment, runCommand } from "../support/CommandRun.ts"
import { dataDirectory } from "../support/Harness.ts"
import { serve } from "../support/HttpServer.ts"
import { compileCache, type Running, start } from "../support/Process.ts"
import { open } from "../support/PseudoTerminal.ts"

const cli = fileURLToPath(new URL("../../src/cli.ts", import.meta.url))

/** Runs `petstore keys` with `input` on standard input. */
const run = (env: Environment, args: ReadonlyArray<string>, input = "") => runCommand(env, ["keys", ...args], input)

/** Runs `petstore keys` and returns its output. It must succeed. */
const output = (env: Environment, ...args: ReadonlyArray<string>) =>
  Effect.map(run(env, args), ({ code, stderr, stdout }) => {
    assert.deepStrictEqual({ code, stderr }, { code: 0, stderr: "" })
    return stdout
  })

/** The service beside which all tests run. The command finds the token in its `DATA_DIR`. */
class Service extends Context.Service<Service, { readonly service: Running; readonly env: Environment }>()(
  "test/Service"
) {
  static readonly layer = Layer.effect(
    Service,
    Effect.gen(function*() {
      const DATA_DIR = yield* dataDirectory
      const service = yield* start({ DATA_DIR, LOG_LEVEL: "trace" })
      return { service, env: { DATA_DIR, PETSTORE_ADMIN_URL: service.management } }
    })
  )
}

/** Returns the status of a request with `key`. */
const listPets = ({ address }: Running, key: string) =>
  Effect.promise(async () =>
    (await fetch(`${address}/v1/pets`, { headers: { authorization: `Bearer ${key}` } })).status
  )

layer(Service.layer, { excludeTestServices: true, timeout: "2 minutes" })("The petstore command", (it) => {
  it.effect(
    "issues, lists, shows, updates, rotates, revokes and unbans keys, and prints their log",
    () =>
      Effect.gen(function*() {
        const { env, service } = yield* Service
        const petstore = (...args: ReadonlyArray<string>) => output(env, ...args)
        const json = (...args: ReadonlyArray<string>) =>
          Effect.map(petstore(...args, "--json"), (text) => JSON.parse(text))
        const limits = ["--plan", "enterprise", "--per-minute", "5", "--per-day", "7"]
        const issued = yield* json("issue", "--name", "big", ...limits, "--expires-at", "2100-01-01")
        const { id } = issued
        assert.containsSubset(issued, {
          name: "big",
          plan: "enterprise",
          limits: { perMinute: 5, perDay: 7 },
          expiresAt: "2100-01-01T00:00:00.000Z"
        })
        assert.strictEqual(yield* listPets(service, issued.key), 200)
        const [hammered = ""] =
          (yield* petstore("issue", "--name", "in words")).match(/^key {8}(psk_\w{38})$/m)?.slice(1) ?? []

        assert.deepStrictEqual(
          (yield* json("list")).map(({ name }: { readonly name: string }) => name),
          ["first key", "big", "in words"]
        )
        const rows = (yield* petstore("list", "--plan", "enterprise", "--search", "BIG")).trimEnd().split("\n")
        assert.match(rows[0] ?? "", /^ID +STATE +PLAN +MINUTE +DAY +HINT +LAST USED +NAME$/)
        assert.match(rows[1] ?? "", new RegExp(`^${id}  active   enterprise  5 +7 +\\w{4}  \\S+ +big$`))
        assert.lengthOf(rows, 2)
        assert.strictEqual(yield* json("list", "--state", "revoked").pipe(Effect.map(JSON.stringify)), "[]")
        assert.match(yield* petstore("show", id), /^minute {5}4 of 5 left until /m)
        assert.containsSubset(yield* json("show", id), { id, usage: { minute: { remaining: 4 } }, ban: null })

        const changes = ["--name", "bigger", "--per-minute", "9", "--per-day", "90", "--expires-at", "never"]
        assert.containsSubset(yield* json("update", id, ...changes), {
          name: "bigger",
          limits: { perMinute: 9, perDay: 90 },
          expiresAt: null,
          version: 2
        })
        assert.match(yield* petstore("update", id, "--name", "big", "--if-version", "2"), /^name {7}big$/m)
        const rotated = yield* json("rotate", id, "--grace-period", "60")
        const statuses = Effect.forEach([issued.key, rotated.key], (key) => listPets(service, key))
        assert.deepStrictEqual(yield* statuses, [200, 200])
        assert.match(yield* petstore("show", id), /^former {5}secret works until 20/m)
        assert.strictEqual(yield* petstore("end-former", id), `Only the current secret of ${id} works.\n`)
        assert.deepStrictEqual(yield* statuses, [401, 200])
        const alone = "This is true of the process that responded: it counts alone."
        assert.strictEqual(yield* petstore("unban", id), `${id} was not banned. ${alone}\n`)
        assert.include((yield* run(env, ["revoke", id, "--if-version", "1"])).stderr, "has version 5")
        assert.strictEqual(yield* petstore("revoke", id, "--if-version", "5"), `${id} is revoked.\n`)
        assert.deepStrictEqual(yield* statuses, [401, 401])

        for (let i = 0; i < 120; i++) yield* listPets(service, hammered)
        const [{ id: banned }] = yield* json("list", "--state", "banned")
        assert.include(yield* petstore("unban", banned), `The ban of ${banned}, which would have lasted until 20`)

        assert.deepStrictEqual(
          (yield* json("log", id)).map(({ action }: { readonly action: string }) => action),
          ["revoke", "unban", "end-former", "rotate", "update", "update", "issue"]
        )
        const log = yield* petstore("log", id, "--limit", "5")
        assert.lengthOf(log.trim().split("\n"), 6)
        assert.match(log, /^\S+Z {2}update {6}key_\w+ {2}admin {5}127\.0\.0\.1 +name: bigger → big$/m)
        assert.notInclude(log, "psk_")
      }),
    240_000
  )

  it.effect("prints one line about a failure, and exits with 1", () =>
    Effect.gen(function*() {
      const { env, service } = yield* Service
      const other = yield* serve((_request, response) => response.writeHead(200, { "content-type": "text/html" }).end())
      const unavailable = yield* serve((_request, response) =>
        response.writeHead(503, { "content-type": "application/json" }).end(
          `{"code":"service_unavailable","message":"The service cannot respond at the moment.","status":503}`
        )
      )
      const failures = [
        [env, ["issue", "--name", "a", "--expires-at", "2020-01-01"], "expected an instant in the future"],
        [env, ["revoke", "key_none"], "There is no key key_none."],
        [env, ["log", "key_none"], "There is no key key_none."],
        [{ ...env, ADMIN_TOKEN: "adm_wrong" }, ["list"], "The admin token is wrong. The command takes it from"],
        [
          { ...env, PETSTORE_ADMIN_URL: service.address },
          ["list", "--json"],
          "There is nothing at this path. Start the service, or set PETSTORE_ADMIN_URL to its management port."
        ],
        [{ ...env, PETSTORE_ADMIN_URL: other }, ["revoke", "key_a"], "set PETSTORE_ADMIN_URL to its management port."],
        [{ ...env, PETSTORE_ADMIN_URL: unavailable }, ["list"], "The service cannot respond at the moment."],
        [{ DATA_DIR: `${env.DATA_DIR}/none` }, ["list"], "There is no admin token"]
      ] as const
      for (const [environment, args, message] of failures) {
        const { code, stderr, stdout } = yield* run(environment, args)
        assert.deepStrictEqual({ code, stdout }, { code: 1, stdout: "" })
        assert.include(stderr, message)
        assert.lengthOf(stderr.trim().split("\n"), 1)
      }
    }), 240_000)

  it.effect(
    "finds the key of a secret, which does not leave the command, and says whether the secret works",
    () =>
      Effect.gen(function*() {
        const { env, service } = yield* Service
        const whose = (input: string, ...args: ReadonlyArray<string>) => run(env, ["whose", ...args], input)
        const json = (...args: ReadonlyArray<string>) =>
          Effect.map(output(env, ...args, "--json"), (text) => JSON.parse(text))
        const first = yield* json("issue", "--name", "leaky")
        const { id } = first
        const works = `The secret works: it is the current secret of ${id}.\n\nid         ${id}\n`
        assert.include((yield* whose(`${first.key}\n`)).stdout, works)

        const second = yield* json("rotate", id, "--grace-period", "3600")
        assert.match((yield* whose(first.key)).stdout, /^The secret works until 20\S+Z: it is a former secret of key_/)
        const third = yield* json("rotate", id)
        assert.include((yield* whose(second.key)).stdout, `The secret does not work: it is a former secret of ${id}.`)
        yield* output(env, "revoke", id)
        assert.include((yield* whose(third.key)).stdout, `The secret does not work: ${id} is revoked.`)
        const found = JSON.parse((yield* whose(third.key, "--json")).stdout)
        assert.containsSubset(found, { id, secret: { works: false, endsAt: null } })

        const unknown = yield* whose(withChecksum("0".repeat(32)))
        assert.deepStrictEqual(unknown, { code: 1, stdout: "", stderr: "No key has this secret.\n" })
        const mistyped = first.key.slice(0, -1) + (first.key.endsWith("0") ? "1" : "0")
        for (const text of [mistyped, "", "x".repeat(1_000_000)]) {
          const { code, stderr, stdout } = yield* whose(text)
          assert.deepStrictEqual({ code, stdout }, { code: 2, stdout: "" })
          assert.include(stderr, "The text is no secret")
          assert.notMatch(stderr, /psk_\w/)
        }
        for (const { key } of [first, second, third]) {
          assert.notInclude(service.stdout() + service.stderr(), key.slice(4, 36))
        }
      }),
    240_000
  )

  it.effect(
    "asks on a terminal before it revokes, and replaces characters of a name that reorder a line",
    () =>
      Effect.gen(function*() {
        const { env } = yield* Service
        const petstore = (args: string) =>
          open(`exec ${process.execPath} ${cli} keys ${args}`, { ...env, ...compileCache })
        const { id } = JSON.parse(yield* output(env, "issue", "--name", "a\u202Eb", "--json"))
        for (const [typed, code] of [["n\r", 1], ["\x03", 130]] as const) {
          const terminal = yield* petstore(`revoke ${id}`)
          yield* terminal.waitFor(/Revoke .*cannot be undone/)
          terminal.type(typed)
          assert.strictEqual(yield* terminal.exitCode, code)
        }
        assert.match(yield* output(env, "show", id), /^name {7}a\uFFFDb\n[^]*^state {6}active$/m)
        const confirmed = yield* petstore(`revoke ${id} --yes`)
        assert.strictEqual(yield* confirmed.exitCode, 0)
      }),
    240_000
  )
})
