/** Tests the deployment files: the image, the manifests, the systemd unit and the balancer's settings. */
import { assert, describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFileSync, spawn } from "node:child_process"
import { chmodSync, cpSync, existsSync, mkdirSync, symlinkSync } from "node:fs"
import { dirname, join } from "node:path"
import { parse, parseAllDocuments } from "yaml"
import { codeBlocks, readPage, root } from "../support/Documents.ts"
import * as EmbeddedTemplate from "../support/EmbeddedTemplate.ts"
import { freePort, temporaryDirectory } from "../support/Harness.ts"
import { until } from "../support/Process.ts"

const which = (program: string): boolean =>
  ["/usr/bin", "/usr/sbin", "/bin", "/usr/local/bin"].some((bin) => existsSync(join(bin, program)))

const isRoot = process.getuid?.() === 0

/** The instructions of the last stage of the Dockerfile. */
const instructions = readPage("Dockerfile").replaceAll(/\\\n\s*/g, "").split(/^FROM /m).at(-1)?.split("\n")
  .flatMap((line) => {
    const [, instruction, rest = ""] = /^([A-Z]+) (.*)$/.exec(line) ?? []
    return instruction === undefined ? [] : [{ instruction, rest }]
  }) ?? []

const commandOf = (name: string): ReadonlyArray<string> =>
  JSON.parse(/\[.*\]$/.exec(instructions.find(({ instruction }) => instruction === name)?.rest ?? "")?.[0] ?? "[]")

/** Mounts everything read-only except for the data directory, and runs a command as an unprivileged user. */
const readOnly =
  "mount --make-rprivate / && mount --bind \"$DATA_DIR\" \"$DATA_DIR\" && mount -o remount,bind,ro / && " +
  "exec setpriv --reuid 65534 --regid 65534 --clear-groups -- \"$@\""

describe("The image", () => {
  it.live.skipIf(!isRoot)(
    "has the command, runs as an unprivileged user on a read-only file system, and reports its health",
    () =>
      Effect.gen(function*() {
        const app = yield* temporaryDirectory
        chmodSync(app, 0o755)
        for (const name of ["package.json", "tsconfig.json", "tsconfig.build.json", "rolldown.config.ts", "src"]) {
          cpSync(join(root, name), join(app, name), { recursive: true })
        }
        symlinkSync(join(root, "node_modules"), join(app, "node_modules"))
        const env = { PATH: `${dirname(process.execPath)}:${process.env.PATH}`, HOME: app }
        execFileSync("npm", ["run", "build"], { cwd: app, env, stdio: "pipe" })
        const { bin } = JSON.parse(readPage("package.json"))
        const help = execFileSync(process.execPath, [join(app, bin.petstore), "keys", "--help"], { encoding: "utf8" })
        assert.include(help, "petstore keys <subcommand>")
        const data = join(app, "data")
        mkdirSync(data)
        yield* EmbeddedTemplate.copyTo(data)
        execFileSync("chown", ["-R", "65534:65534", data])

        const [port, management] = [yield* freePort, yield* freePort]
        const image = instructions.filter(({ instruction }) => instruction === "ENV").flatMap(({ rest }) =>
          rest.split(" ")
        )
        const settings = {
          ...env,
          // `docker build --build-arg REVISION=0123abc` sets the argument.
          ...Object.fromEntries(image.map((pair) => pair.replace("$REVISION", "0123abc").split("="))),
          DATA_DIR: data,
          PORT: String(port),
          MANAGEMENT_PORT: String(management)
        }
        const service = yield* Effect.acquireRelease(
          Effect.sync(() =>
            spawn("unshare", ["-m", "sh", "-c", readOnly, "sh", ...commandOf("CMD")], {
              cwd: app,
              env: settings,
              stdio: ["ignore", "pipe", "inherit"]
            })
          ),
          (child) => Effect.sync(() => child.kill("SIGKILL"))
        )
        let output = ""
        service.stdout.on("data", (chunk: Buffer) => {
          output += chunk.toString()
        })
        // The first key is shown last.
        yield* until(() => /psk_\w+/.test(output) || service.exitCode !== null)
        const get = (url: string) => Effect.promise(() => fetch(url).then((response) => response.text()))
        assert.include(yield* get(`http://127.0.0.1:${management}/healthz`), `"revision":"0123abc"`)
        assert.include(yield* get(`http://127.0.0.1:${management}/`), "<html")
        const [node = "", ...check] = commandOf("HEALTHCHECK")
        execFileSync(node, check, { env: settings })
        const exited = new Promise((resolve) => service.on("exit", resolve))
        service.kill("SIGTERM")
        assert.strictEqual(yield* Effect.promise(() => exited), 0)
        assert.throws(() => execFileSync(node, check, { env: settings, stdio: "ignore" }))
      }),
    180_000
  )
})

interface Manifest {
  readonly apiVersion: string
  readonly kind: string
}

/** Throws if the schemas of Kubernetes or of the Prometheus operator reject a manifest. */
const validate = async ({ apiVersion, kind, ...rest }: Manifest): Promise<void> => {
  const models = await import(
    apiVersion.startsWith("monitoring.coreos.com/")
      ? `@kubernetes-models/prometheus-operator/${apiVersion}`
      : `kubernetes-models/${apiVersion}`
  )
  new models[kind]({ apiVersion, kind, ...rest }).validate()
}

describe("Files for operators", () => {
  const overlays = ["staging", "production"]
  it.skipIf(!which("kubectl")).each(overlays)(
    "hold an overlay that Kubernetes' schemas accept: %s",
    async (overlay) => {
      const output = execFileSync("kubectl", ["kustomize", join(root, "deploy/kubernetes/overlays", overlay)])
        .toString()
      const manifests = parseAllDocuments(output).map((document): Manifest => document.toJS())
      for (const manifest of manifests) await validate(manifest)
      assert.sameMembers(manifests.map(({ kind }) => kind), [
        "ConfigMap",
        "Service",
        "Service",
        "Deployment",
        "PodDisruptionBudget",
        "HorizontalPodAutoscaler",
        "NetworkPolicy",
        "ServiceMonitor",
        "PrometheusRule"
      ])
      assert.match(output, /image: \S+@sha256:[0-9a-f]{64}\n/)
      assert.include(output, `TRUSTED_PROXIES: ""`)
    }
  )

  it("hold the alert rules for the Prometheus operator too", async () => {
    const [, rules = ""] = readPage("deploy/alerts.yaml").split(/^(?=groups:)/m)
    await expect([
      "# deploy/alerts.yaml for the Prometheus operator. A test holds both equal; run it with `-u` after a change.",
      "apiVersion: monitoring.coreos.com/v1",
      "kind: PrometheusRule",
      "metadata:",
      "  name: petstore",
      "spec:",
      rules.replaceAll(/^(?=.)/gm, "  ")
    ].join("\n")).toMatchFileSnapshot("../../deploy/kubernetes/base/alerts.yaml")
  })

  it("document an Ingress that Kubernetes' schemas accept, and a secret with what the pods need", async () => {
    const page = readPage("docs/install.md")
    const ingress = codeBlocks(page).find(({ code }) => code.includes("kind: Ingress"))
    await validate(parse(ingress?.code ?? ""))
    const keys = [...readPage("deploy/kubernetes/base/petstore.yaml").matchAll(/name: petstore, key: (\w+)/g)]
    assert.deepStrictEqual(
      [...page.matchAll(/--from-literal=(\w+)=/g)].map(([, name]) => name),
      keys.map(([, name]) => name)
    )
  })

  it.skipIf(!which("systemd-analyze"))("hold a systemd unit that systemd accepts, and that needs its settings", () => {
    const output = execFileSync("systemd-analyze", ["verify", join(root, "deploy/petstore@.service")], {
      stdio: "pipe"
    })
    assert.strictEqual(output.toString(), "")
    assert.match(readPage("deploy/petstore@.service"), /^EnvironmentFile=\//m)
  })

  it.skipIf(!which("haproxy"))("hold a balancer's settings that haproxy accepts", () => {
    // The program exits with a code other than 0 if it rejects the file.
    assert.doesNotThrow(() =>
      execFileSync("haproxy", ["-c", "-f", join(root, "deploy/haproxy.cfg")], { stdio: "pipe" })
    )
  })
})
