import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFileSync, spawnSync } from "node:child_process"
import { chmodSync, cpSync, existsSync, readFileSync, symlinkSync } from "node:fs"
import { dirname, join } from "node:path"
import { parse, parseAllDocuments } from "yaml"
import { dataDirectory } from "../support/Databases.ts"
import { codeBlocks, readPage, root } from "../support/Documents.ts"
import { install } from "../support/NpmPrograms.ts"
import { firstKey, send, start, stop } from "../support/Process.ts"
import { freePort, temporaryDirectory } from "../support/Temporary.ts"

const which = (program: string): boolean =>
  ["/usr/bin", "/usr/sbin", "/bin", "/usr/local/bin"].some((bin) => existsSync(join(bin, program)))

/** The last stage of the Dockerfile, with each instruction on one line. */
const image = readPage("Dockerfile").replaceAll(/\\\n\s*/g, "").split(/^FROM /m).at(-1) ?? ""

const commandOf = (instruction: string): ReadonlyArray<string> =>
  JSON.parse(new RegExp(`^${instruction} .*?(\\[.*\\])$`, "m").exec(image)?.[1] ?? "[]")

/** Mounts everything read-only except for the data directory, and runs a command as an unprivileged user. */
const readOnly =
  "mount --make-rprivate / && mount --bind \"$DATA_DIR\" \"$DATA_DIR\" && mount -o remount,bind,ro / && " +
  "exec setpriv --reuid 65534 --regid 65534 --clear-groups -- \"$@\""

const copyOf = (...names: ReadonlyArray<string>) =>
  Effect.tap(temporaryDirectory, (directory) => {
    for (const name of names) cpSync(join(root, name), join(directory, name), { recursive: true })
    return Effect.void
  })

it.live.runIf(process.getuid?.() === 0)(
  "The image runs unprivileged and read-only, and reports health",
  () =>
    Effect.gen(function*() {
      const app = yield* copyOf("package.json", "tsconfig.json", "tsconfig.build.json", "rolldown.config.ts", "src")
      chmodSync(app, 0o755)
      symlinkSync(join(root, "node_modules"), join(app, "node_modules"))
      const PATH = `${dirname(process.execPath)}:${process.env.PATH}`
      execFileSync("npm", ["run", "build"], { cwd: app, env: { PATH, HOME: app }, stdio: "pipe" })
      const [, link = ""] = /&& (chmod .* && ln .*)$/m.exec(readPage("Dockerfile")) ?? []
      execFileSync("sh", ["-c", link.replace("/app/", `${app}/`).replace("/usr/local/bin", app)], { cwd: app })
      const help = execFileSync(join(app, "petstore"), ["keys", "--help"], { encoding: "utf8", env: { PATH } })
      assert.include(help, "petstore keys <subcommand>")
      // Reading one file instead of hundreds more than halves the time of a command.
      assert.notMatch(
        readFileSync(join(app, "dist/cli.js"), "utf8"),
        /^(?:import|export) .*"(?:effect|@effect|\.\/(?!chunks))/m
      )
      const { stderr } = spawnSync(join(app, "petstore"), ["import"], {
        encoding: "utf8",
        env: { PATH, DATA_DIR: "/none" }
      })
      assert.match(stderr, /^DATABASE_URL: set it/)
      const DATA_DIR = yield* dataDirectory
      execFileSync("chown", ["-R", "65534:65534", DATA_DIR])

      const settings = [...image.matchAll(/^ENV (.*)$/gm)].flatMap(([, pairs = ""]) => pairs.split(" "))
      // `docker build --build-arg REVISION=0123abc` sets the argument.
      const fromImage = Object.fromEntries(settings.map((pair) => pair.replace("$REVISION", "0123abc").split("=")))
      const env = { PATH, ...fromImage, DATA_DIR, PORT: "0", MANAGEMENT_PORT: String(yield* freePort) }
      const service = yield* start(env, ["unshare", "-m", "sh", "-c", readOnly, "sh", ...commandOf("CMD")], app)
      assert.match(yield* firstKey(service), /^psk_\w{38}$/)
      assert.containsSubset((yield* send(`${service.management}/healthz`, "")).body, { revision: "0123abc" })
      assert.include((yield* send(service.management, "")).text, "<html")
      const [node = "", ...check] = commandOf("HEALTHCHECK")
      execFileSync(node, check, { env })
      assert.strictEqual(yield* stop(service, "SIGTERM"), 0)
      assert.throws(() => execFileSync(node, check, { env, stdio: "ignore" }))
    })
)

it.live("npm ci --omit=dev installs at most 125 MB, and serves requests on the machine's own Node 22", () =>
  Effect.gen(function*() {
    const node = (yield* install("node"))("node")
    const cwd = yield* copyOf("package.json", "package-lock.json", "src")
    const env = { ...process.env, PATH: `${dirname(node)}:/usr/local/bin:/usr/bin:/bin` }
    const run = (command: string) => execFileSync("sh", ["-c", command], { cwd, env, encoding: "utf8" })
    const output = run("node --version; npm ci --omit=dev 2>&1")
    assert.match(output, /^v22\./)
    assert.notMatch(output, /warn/i)
    assert.isBelow(Number.parseInt(run("du -sm node_modules")), 125)

    const service = yield* start({ PATH: env.PATH, HOME: cwd }, ["npm", "start"], cwd)
    assert.strictEqual((yield* send(`${service.address}/v1/pets`, yield* firstKey(service))).status, 200)
    assert.include((yield* send(service.management, "")).text, "The console is not built.")
    assert.strictEqual(yield* stop(service, "SIGTERM"), 0)
    assert.isTrue(existsSync(join(cwd, "node_modules/.cache/petstore")), "the compiled code")
  }))

type Manifest = Readonly<Record<"apiVersion" | "kind", string>>

const validate = async (manifest: Manifest): Promise<void> => {
  const isMonitoring = manifest.apiVersion.startsWith("monitoring.coreos.com/")
  const models = isMonitoring ? "@kubernetes-models/prometheus-operator" : "kubernetes-models"
  const { [manifest.kind]: Model } = await import(`${models}/${manifest.apiVersion}`)
  new Model(manifest).validate()
}

const unit = "deploy/petstore@.service"

describe("Files for operators", () => {
  const overlays = ["staging", "production"]
  it.skipIf(!which("kubectl")).each(overlays)("contain an overlay that Kubernetes accepts: %s", async (overlay) => {
    const output = execFileSync("kubectl", ["kustomize", join(root, "deploy/kubernetes/overlays", overlay)]).toString()
    const manifests = parseAllDocuments(output).map((document): Manifest => document.toJS())
    for (const manifest of manifests) await validate(manifest)
    const kinds = "ConfigMap Service Service Deployment NetworkPolicy PodDisruptionBudget HorizontalPodAutoscaler"
    assert.sameMembers(manifests.map(({ kind }) => kind), [...kinds.split(" "), "ServiceMonitor", "PrometheusRule"])
    assert.match(output, /image: \S+@sha256:[0-9a-f]{64}\n/)
    assert.include(output, `TRUSTED_PROXIES: ""`)
    assert.include(output, `ENVIRONMENT: ${overlay}`)
    assert.include(output, `absent(up{job="petstore", namespace="petstore-${overlay}"})`)
    // The connections fit the defaults of PostgreSQL and PgBouncer, as docs/database.md says.
    assert.isBelow((Number(/maxReplicas: (\d+)/.exec(output)?.[1]) + 3) * 10, 100 - 3)
  })

  it("document an Ingress that Kubernetes' schemas accept, and every key of the secret", async () => {
    const page = readPage("docs/install.md")
    await validate(parse(codeBlocks(page).find(({ code }) => code.includes("kind: Ingress"))?.code ?? ""))
    const namesIn = (text: string, pattern: RegExp) => [...text.matchAll(pattern)].map(([, name]) => name)
    const read = namesIn(readPage("deploy/kubernetes/base/petstore.yaml"), /name: petstore, key: (\w+)/g)
    assert.deepStrictEqual(namesIn(page, /--from-literal=(\w+)=/g), read)
  })

  it.skipIf(!which("systemd-analyze"))("contain a unit that systemd accepts, and that needs its settings", () => {
    assert.strictEqual(execFileSync("systemd-analyze", ["verify", join(root, unit)], { encoding: "utf8" }), "")
    assert.match(readPage(unit), /^EnvironmentFile=\//m)
  })
})
