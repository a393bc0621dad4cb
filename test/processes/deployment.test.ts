/** Tests the deployment files: the steps of the image, the systemd unit, the manifests and the balancer's settings. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFileSync, spawn } from "node:child_process"
import { chmodSync, chownSync, cpSync, existsSync, mkdirSync, readFileSync } from "node:fs"
import { homedir } from "node:os"
import { dirname, join } from "node:path"
import { parse, parseAllDocuments } from "yaml"
import { codeBlocks } from "../support/Documents.ts"
import { freePort, temporaryDirectory } from "../support/Harness.ts"

const root = new URL("../..", import.meta.url).pathname
const read = (file: string): string => readFileSync(join(root, file), "utf8")

/** An unprivileged user, if the test may switch users. */
const unprivileged = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {}
const giveToUser = (path: string): void => {
  if (unprivileged.uid !== undefined) chownSync(path, unprivileged.uid, unprivileged.gid)
}

/** The instructions of each stage of the Dockerfile. */
const stages = read("Dockerfile").replaceAll(/\\\n\s*/g, "").split(/^FROM /m).slice(1).map((stage) =>
  stage.split("\n").map((line) => /^([A-Z]+) (.*)$/.exec(line)).filter((line) => line !== null)
    .map(([, instruction = "", rest = ""]) => ({ instruction, rest }))
)

describe("The Dockerfile", () => {
  it.live(
    "builds as an unprivileged user, without a warning of npm, an image that runs on a read-only file system and reports its health",
    () =>
      Effect.gen(function*() {
        const directory = yield* temporaryDirectory
        chmodSync(directory, 0o755)
        const [build, app, data, home] = ["build", "app", "data", "home"].map((name) => {
          const path = join(directory, name)
          mkdirSync(path)
          giveToUser(path)
          return path
        })
        if (build === undefined || app === undefined || data === undefined || home === undefined) return
        // npm finds the registry through the configuration of the user that runs the test.
        const npmrc = join(homedir(), ".npmrc")
        if (existsSync(npmrc)) cpSync(npmrc, join(home, ".npmrc"))
        const { NODE_EXTRA_CA_CERTS = "" } = process.env
        const env = { PATH: `${dirname(process.execPath)}:${process.env.PATH}`, HOME: home, NODE_EXTRA_CA_CERTS }
        const [steps = [], final = []] = stages
        for (const { instruction, rest } of steps) {
          if (instruction === "COPY") {
            const [to = "", ...from] = rest.split(" ").toReversed()
            for (const each of from) {
              cpSync(join(root, each), join(build, to === "./" ? each : to), { recursive: true })
              if (unprivileged.uid !== undefined) {
                execFileSync("chown", ["-R", `${unprivileged.uid}:${unprivileged.gid}`, build])
              }
            }
          } else if (instruction === "RUN") {
            const options = { ...unprivileged, cwd: build, env, encoding: "utf8", timeout: 240_000 } as const
            assert.notMatch(execFileSync("sh", ["-c", `exec 2>&1; ${rest}`], options), /npm warn/i)
          }
        }
        for (const { instruction, rest } of final) {
          const [, from, to = ""] = /^--from=build \/build\/(\S+) (\S+)$/.exec(rest) ?? []
          if (instruction === "COPY" && from !== undefined) {
            cpSync(join(build, from), join(app, to === "./" ? from : to), { recursive: true, verbatimSymlinks: true })
          }
        }
        assert.isFalse(existsSync(join(app, "node_modules/vitest")), "what only developers need is left behind")
        const size = Number(execFileSync("du", ["-sm", app]).toString().split("\t")[0])
        assert.isBelow(size, 150, "megabytes beside Node itself")

        const command = (instruction: string): ReadonlyArray<string> =>
          JSON.parse(
            /\[.*\]$/.exec(
              final.findLast((line) => line.instruction === instruction)?.rest ?? ""
            )?.[0] ?? "[]"
          )
        const pairs = (kind: string): ReadonlyArray<ReadonlyArray<string>> =>
          final.filter(({ instruction }) => instruction === kind).flatMap(({ rest }) =>
            rest.split(" ").map((pair) => pair.split("="))
          )
        // `docker build --build-arg REVISION=0123abc` sets the argument that the final stage declares.
        const declared = new Set(pairs("ARG").map(([name]) => `$${name}`))
        const valueOf = (value: string): string => declared.has(value) ? "0123abc" : value.startsWith("$") ? "" : value
        const [port, management] = [yield* freePort, yield* freePort]
        const settings = {
          ...env,
          ...Object.fromEntries(pairs("ENV").map(([name, value = ""]) => [name, valueOf(value)])),
          DATA_DIR: data,
          PORT: String(port),
          MANAGEMENT_PORT: String(management)
        }
        // Runs it in a mount namespace where only the data directory is writable.
        const readOnly =
          "mount --make-rprivate / && mount --bind \"$DATA_DIR\" \"$DATA_DIR\" && mount -o remount,bind,ro / && " +
          "exec setpriv --reuid 65534 --regid 65534 --clear-groups -- \"$@\""
        const run = unprivileged.uid === undefined
          ? { file: command("CMD")[0] ?? "", args: command("CMD").slice(1) }
          : { file: "unshare", args: ["-m", "sh", "-c", readOnly, "sh", ...command("CMD")] }
        const service = yield* Effect.acquireRelease(
          Effect.sync(() => spawn(run.file, run.args, { cwd: app, env: settings, stdio: ["ignore", "pipe", "pipe"] })),
          (child) => Effect.sync(() => child.kill("SIGKILL"))
        )
        let output = ""
        service.stdout.on("data", (chunk: Buffer) => {
          output += chunk.toString()
        })
        service.stderr.on("data", (chunk: Buffer) => {
          output += chunk.toString()
        })
        const deadline = performance.now() + 30_000
        while (!output.includes("curl") && performance.now() < deadline) yield* Effect.sleep("50 millis")
        assert.include(output, "curl", "the service starts, and logs an example of a request")
        const key = /psk_\w+/.exec(output)?.[0] ?? ""
        const response = yield* Effect.promise(() =>
          fetch(`http://127.0.0.1:${port}/v1/pets`, { headers: { authorization: `Bearer ${key}` } })
        )
        assert.strictEqual(response.status, 200, output)
        const consoleFile = yield* Effect.promise(() => fetch(`http://127.0.0.1:${management}/console.js`))
        assert.strictEqual(consoleFile.status, 200, "the image has the files of the console")
        const health = yield* Effect.promise(() =>
          fetch(`http://127.0.0.1:${management}/healthz`).then((healthz) => healthz.json())
        )
        assert.propertyVal(health, "revision", "0123abc")
        const [node = "", ...check] = command("HEALTHCHECK")
        execFileSync(node, check, { env: settings })
        if (unprivileged.uid !== undefined) {
          assert.include(readFileSync(`/proc/${service.pid}/status`, "utf8"), `Uid:\t${unprivileged.uid}`)
        }
        // Every user of the machine can read a process's arguments, so they must hold no secret.
        assert.notInclude(readFileSync(`/proc/${service.pid}/cmdline`, "utf8"), "psk_")
        service.kill("SIGTERM")
        yield* Effect.promise(() => new Promise((resolve) => service.on("close", resolve)))
        assert.strictEqual(service.exitCode, 0)
        assert.throws(() => execFileSync(node, check, { env: settings, stdio: "ignore" }))
      }),
    360_000
  )
})

interface Ingress {
  readonly apiVersion: string
  readonly spec: {
    readonly rules: ReadonlyArray<{
      readonly http: { readonly paths: ReadonlyArray<{ readonly backend: { readonly service: unknown } }> }
    }>
  }
}

const which = (program: string): boolean =>
  ["/usr/bin", "/usr/sbin", "/bin"].some((bin) => existsSync(join(bin, program)))

describe("Files for operators", () => {
  it("hold a Kubernetes manifest that Kubernetes' schemas accept, with probes, limits and a disruption budget", async () => {
    const kinds: Array<string> = []
    for (const document of parseAllDocuments(read("deploy/kubernetes.yaml"))) {
      const manifest: { readonly apiVersion: string; readonly kind: string } = document.toJS()
      const models = await import(`kubernetes-models/${manifest.apiVersion}`)
      new models[manifest.kind](manifest).validate()
      kinds.push(manifest.kind)
    }
    assert.deepStrictEqual(kinds, ["Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"])
    const text = read("deploy/kubernetes.yaml")
    for (const expected of ["startupProbe", "readinessProbe", "livenessProbe", "limits", "runAsNonRoot"]) {
      assert.include(text, expected)
    }
  })

  it("document an Ingress that Kubernetes' schemas accept, and a secret, that fit the manifest", async () => {
    const page = read("docs/install.md")
    const manifest = read("deploy/kubernetes.yaml")
    const source = codeBlocks(page).find(({ code, language }) => language === "yaml" && code.includes("kind: Ingress"))
    const ingress: Ingress = parse(source?.code ?? "")
    const models = await import(`kubernetes-models/${ingress.apiVersion}`)
    new models.Ingress(ingress).validate()
    const backends = ingress.spec.rules.flatMap(({ http }) => http.paths.map(({ backend }) => backend.service))
    assert.deepStrictEqual(backends, [{ name: "petstore", port: { name: "http" } }])
    const service: unknown = parseAllDocuments(manifest).map((document) => document.toJS())
      .find(({ kind }) => kind === "Service")
    assert.nestedPropertyVal(service, "metadata.name", "petstore")
    assert.nestedPropertyVal(service, "spec.ports[0].name", "http")

    const [, secret, values = ""] = /kubectl create secret generic (\S+) \\\n((?: +--from-literal.*\n)+)/.exec(page) ??
      []
    assert.include(manifest, `secretRef: { name: ${secret} }`)
    const names = [...values.matchAll(/--from-literal=(\w+)=/g)].map(([, name]) => name)
    assert.deepStrictEqual(names, ["DATABASE_URL", "REDIS_URL", "ADMIN_TOKEN"])
  })

  it.skipIf(!which("systemd-analyze"))("have a systemd unit that systemd accepts", () => {
    const output = execFileSync("systemd-analyze", ["verify", join(root, "deploy/petstore@.service")], {
      stdio: ["ignore", "pipe", "pipe"]
    })
    assert.strictEqual(output.toString(), "")
  })

  it.skipIf(!which("haproxy"))("have a balancer's settings that haproxy accepts", () => {
    // The program exits with a code other than 0 if it rejects the file.
    assert.doesNotThrow(() =>
      execFileSync("haproxy", ["-c", "-f", join(root, "deploy/haproxy.cfg")], { stdio: "pipe" })
    )
  })

  it("hold a compose file whose services are hardened", () => {
    const { services }: { readonly services: Readonly<Record<string, { readonly read_only?: boolean }>> } = parse(
      read("deploy/compose.yaml"),
      { merge: true }
    )
    assert.deepStrictEqual(Object.keys(services), ["petstore-1", "petstore-2", "balancer", "postgres", "valkey"])
    assert.isTrue(services["petstore-1"]?.read_only)
  })
})
