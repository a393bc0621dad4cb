/** The `petstore` command beside a running service on the embedded database. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFile, spawn } from "node:child_process"
import { cp, readFile, symlink } from "node:fs/promises"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { withChecksum } from "../../src/api/SecretForm.ts"
import { temporaryDirectory } from "../support/Harness.ts"
import { serve } from "../support/HttpServer.ts"
import { type Running, start } from "../support/Process.ts"

const cli = fileURLToPath(new URL("../../src/cli.ts", import.meta.url))

const root = fileURLToPath(new URL("../..", import.meta.url))

/** The compiled code of the command, as `npm run petstore` keeps it. The tests start the command a hundred times. */
const NODE_COMPILE_CACHE = join(root, "node_modules/.cache/petstore")

/** Runs `petstore` with `args`. Its environment is `env` alone. */
const run = (env: Readonly<Record<string, string>>, ...args: ReadonlyArray<string>) => runWithInput("", env, ...args)

/** As `run`, with `input` on standard input. */
const runWithInput = (input: string, env: Readonly<Record<string, string>>, ...args: ReadonlyArray<string>) =>
  Effect.promise(() =>
    new Promise<{ readonly code: number | null; readonly stdout: string; readonly stderr: string }>((resolve) => {
      const child = spawn(process.execPath, [cli, ...args], {
        env: { PATH: process.env.PATH, NODE_COMPILE_CACHE, ...env }
      })
      let stdout = ""
      let stderr = ""
      child.stdout.on("data", (chunk: Buffer) => {
        stdout += chunk.toString()
      })
      child.stderr.on("data", (chunk: Buffer) => {
        stderr += chunk.toString()
      })
      child.on("close", (code) => resolve({ code, stdout, stderr }))
      // The command may end before it has read its input.
      child.stdin.on("error", () => {}).end(input)
    })
  )

/** Starts a server that sends one response to every request, and returns its address. */
const startServer = (status: number, type: string, body: string) =>
  serve((_request, response) => response.writeHead(status, { "content-type": type }).end(body))

const list = ({ address }: Running, key: string) =>
  Effect.promise(() => fetch(`${address}/v1/pets`, { headers: { authorization: `Bearer ${key}` } })).pipe(
    Effect.map(({ status }) => status)
  )

describe("The petstore command", () => {
  it.live(
    "issues, lists, shows, updates, rotates, revokes and unbans keys with the token of the service's DATA_DIR",
    () =>
      Effect.gen(function*() {
        const DATA_DIR = yield* temporaryDirectory
        const service = yield* start({ DATA_DIR })
        const petstore = (...args: ReadonlyArray<string>) =>
          Effect.map(
            run({ DATA_DIR, PETSTORE_ADMIN_URL: service.management }, "keys", ...args),
            ({ code, stderr, stdout }) => {
              assert.deepStrictEqual({ code, stderr }, { code: 0, stderr: "" })
              return stdout
            }
          )
        const limits = ["--per-minute", "5", "--per-day", "7"]
        const issued = JSON.parse(
          yield* petstore(
            "issue",
            "--json",
            "--name",
            "big",
            "--plan",
            "enterprise",
            ...limits,
            "--expires-at",
            "2100-01-01"
          )
        )
        assert.containsSubset(issued, {
          name: "big",
          plan: "enterprise",
          limits: { perMinute: 5, perDay: 7 },
          expiresAt: "2100-01-01T00:00:00.000Z"
        })
        assert.strictEqual(yield* list(service, issued.key), 200)
        const text = yield* petstore("issue", "--name", "in words")
        assert.match(text, /^key {8}psk_[0-9A-Za-z]{38}$/m)

        const keys = JSON.parse(yield* petstore("list", "--json"))
        assert.deepStrictEqual(keys.map(({ name }: { name: string }) => name), ["first key", "big", "in words"])
        assert.lengthOf((yield* petstore("list")).trim().split("\n"), 3)
        assert.match(yield* petstore("show", issued.id), /^minute {5}█{4}░{16} {2}4 of 5 left until /m)
        assert.containsSubset(JSON.parse(yield* petstore("show", issued.id, "--json")), {
          id: issued.id,
          usage: { minute: { remaining: 4 } },
          ban: null
        })

        const updated = ["update", issued.id, "--name", "bigger", "--per-minute", "9", "--per-day", "90"]
        assert.containsSubset(JSON.parse(yield* petstore(...updated, "--expires-at", "never", "--json")), {
          name: "bigger",
          plan: "enterprise",
          limits: { perMinute: 9, perDay: 90 },
          expiresAt: null,
          version: 2
        })
        assert.match(yield* petstore("show", issued.id), /^minute {5}█{3}░{17} {2}8 of 9 left until /m)
        const secret = `secret     psk_…${issued.key.slice(-4)}`
        assert.include(yield* petstore("update", issued.id, "--name", "big", "--if-version", "2"), secret)

        const rotated = JSON.parse(yield* petstore("rotate", issued.id, "--grace-period", "60", "--json"))
        assert.deepStrictEqual([yield* list(service, issued.key), yield* list(service, rotated.key)], [200, 200])
        assert.include(yield* petstore("unban", issued.id), "was not banned.")
        assert.include(yield* petstore("revoke", issued.id), "is revoked")
        assert.deepStrictEqual([yield* list(service, issued.key), yield* list(service, rotated.key)], [401, 401])

        const entries = JSON.parse(yield* petstore("log", issued.id, "--json"))
        assert.deepStrictEqual(
          entries.map(({ action }: { readonly action: string }) => action),
          ["revoke", "unban", "rotate", "update", "update", "issue"]
        )
        const log = yield* petstore("log", issued.id, "--limit", "4")
        assert.lengthOf(log.trim().split("\n"), 4)
        assert.match(log, /^\S+Z\tupdate\tkey_\w+\t127\.0\.0\.1\tname: bigger → big$/m)
        assert.notInclude(log, "psk_")
        assert.lengthOf(JSON.parse(yield* petstore("log", "--json")), 8)

        const [hammered] = (yield* petstore("issue", "--name", "hammered")).match(/psk_\w+$/m) ?? []
        for (let i = 0; i < 120; i++) yield* list(service, hammered ?? "")
        const [{ keyId: id }] = JSON.parse(yield* petstore("log", "--json", "--limit", "1"))
        const banned = yield* petstore("list", "--search", "HAMMER", "--state", "active", "--plan", "free")
        const fields = [id, "hammered", "free", "60", "1000", "banned", hammered?.slice(-4)]
        assert.strictEqual(banned.split("\t").slice(0, 7).join(), fields.join())
        // The last use is recorded every 10 seconds.
        assert.match(banned, /\t(20\S+Z)?\t20\S+Z\n$/)
        assert.include(yield* petstore("unban", id), `The ban of ${id}, which would have lasted until 20`)
        assert.strictEqual(yield* list(service, hammered ?? ""), 429)
      }),
    240_000
  )

  it.live("prints one line about an error and exits with a code other than 0", () =>
    Effect.gen(function*() {
      const DATA_DIR = yield* temporaryDirectory
      const { address, management } = yield* start({ DATA_DIR, ADMIN_TOKEN: "adm_test" })
      const html = yield* startServer(200, "text/html", "<html></html>")
      const outage = yield* startServer(
        503,
        "application/json",
        `{"code":"service_unavailable","message":"The service cannot respond at the moment.","status":503}`
      )
      const reachable = { PETSTORE_ADMIN_URL: management, ADMIN_TOKEN: "adm_test" }
      const invalid = [
        [
          reachable,
          ["keys", "issue", "--name", "a", "--expires-at", "2020-01-01"],
          1,
          "expected an instant in the future"
        ],
        [reachable, ["keys", "revoke", "key_none"], 1, "There is no key key_none."],
        [reachable, ["keys", "list", "--bogus"], 2, "--bogus: unknown flag of petstore keys list. See --help"],
        [
          { ...reachable, ADMIN_TOKEN: "adm_wrong" },
          ["keys", "list"],
          1,
          "The admin token is wrong. (The command took it from ADMIN_TOKEN.)"
        ],
        [
          { ...reachable, PETSTORE_ADMIN_URL: address },
          ["keys", "list"],
          1,
          "is not the management port of this service"
        ],
        [{ ...reachable, PETSTORE_ADMIN_URL: html }, ["keys", "list"], 1, "is not the management port of this service"],
        [{ ...reachable, PETSTORE_ADMIN_URL: html }, ["keys", "revoke", "key_a"], 1, "is not the management port"],
        [
          { ...reachable, PETSTORE_ADMIN_URL: outage },
          ["keys", "list"],
          1,
          "The service cannot respond at the moment."
        ],
        [
          { ...reachable, PETSTORE_ADMIN_URL: "ftp://localhost" },
          ["keys", "list"],
          2,
          "PETSTORE_ADMIN_URL: the value has the scheme ftp, which is not http or https. Expected localhost:9090"
        ],
        [{ DATA_DIR: `${DATA_DIR}/none` }, ["keys", "list"], 1, "There is no admin token"]
      ] as const
      const outcomes = yield* Effect.forEach(invalid, ([env, args]) => run(env, ...args), { concurrency: 2 })
      for (const [index, [, , code, message]] of invalid.entries()) {
        const outcome = outcomes[index]
        assert.include(outcome?.stderr, message)
        assert.strictEqual(outcome?.code, code)
        assert.lengthOf(outcome?.stderr.trim().split("\n") ?? [], 1)
        assert.strictEqual(outcome?.stdout, "")
      }
    }), 240_000)

  it.live(
    "finds the key of a secret, which does not leave the command, and says whether the secret works",
    () =>
      Effect.gen(function*() {
        const DATA_DIR = yield* temporaryDirectory
        const service = yield* start({ DATA_DIR, LOG_LEVEL: "trace" })
        const env = { DATA_DIR, PETSTORE_ADMIN_URL: service.management }
        const json = (...args: ReadonlyArray<string>) =>
          Effect.map(run(env, "keys", ...args, "--json"), ({ stdout }) => JSON.parse(stdout))
        const first = yield* json("issue", "--name", "leaky")
        const { id } = first
        const whose = (input: string, ...args: ReadonlyArray<string>) =>
          runWithInput(input, env, "keys", "whose", ...args)

        const found = yield* whose(`${first.key}\n`)
        assert.strictEqual(found.code, 0)
        assert.include(found.stdout, `The secret works: it is the current secret of ${id}.\n\nid         ${id}\n`)
        assert.strictEqual((yield* whose("", first.key)).stdout, found.stdout)

        const second = yield* json("rotate", id, "--grace-period", "3600")
        assert.match((yield* whose(first.key)).stdout, /^The secret works until 20\S+Z: it is a former secret of key_/)
        const third = yield* json("rotate", id)
        for (const { key } of [first, second]) {
          assert.include((yield* whose(key)).stdout, `The secret does not work: it is a former secret of ${id}.`)
        }
        yield* json("revoke", id)
        assert.include((yield* whose(third.key)).stdout, `The secret does not work: ${id} is revoked.`)
        assert.containsSubset(JSON.parse((yield* whose(third.key, "--json")).stdout), {
          id,
          secret: { works: false, endsAt: null }
        })

        const unknown = withChecksum("0".repeat(32))
        assert.deepStrictEqual(yield* whose(unknown), { code: 1, stdout: "", stderr: "No key has this secret.\n" })
        const mistyped = first.key.slice(0, -1) + (first.key.endsWith("0") ? "1" : "0")
        // A malformed secret is found without the service.
        const offline = { ...env, PETSTORE_ADMIN_URL: "http://127.0.0.1:1" }
        const complaints = [
          yield* whose(mistyped),
          yield* whose(""),
          yield* whose("x".repeat(1_000_000)),
          yield* runWithInput("", offline, "keys", "whose", mistyped),
          yield* whose("", mistyped, mistyped),
          yield* run(env, "keys", "whose", `--secret=${first.key}`)
        ]
        for (const { code, stderr, stdout } of complaints) {
          assert.strictEqual(code, 2)
          assert.notMatch(stdout, /psk_\w/)
          assert.lengthOf(stderr.trim().split("\n"), 1)
          assert.notMatch(stderr, /psk_\w/)
        }
        assert.include(complaints[0]?.stderr, "a checksum")
        for (const { key } of [first, second, third]) {
          assert.notInclude(service.stdout() + service.stderr(), key.slice(4, 36))
        }
      }),
    240_000
  )

  it.live("runs from the build", () =>
    Effect.gen(function*() {
      const directory = yield* temporaryDirectory
      const { bin } = JSON.parse(yield* Effect.promise(() => readFile(join(root, "package.json"), "utf8")))
      const help = yield* Effect.promise(async () => {
        await promisify(execFile)(process.execPath, [
          join(root, "node_modules/typescript/bin/tsc"),
          "-p",
          join(root, "tsconfig.build.json"),
          "--outDir",
          join(directory, "dist")
        ])
        await cp(join(root, "package.json"), join(directory, "package.json"))
        await symlink(join(root, "node_modules"), join(directory, "node_modules"))
        return promisify(execFile)(process.execPath, [join(directory, bin.petstore), "keys", "--help"])
      })
      assert.include(help.stdout, "petstore keys <subcommand>")
    }), 240_000)
})
