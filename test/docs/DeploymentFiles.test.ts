/** Tests that the files in deploy/ have the lines that the pages promise. */
import { assert, describe, it } from "@effect/vitest"
import { spawnSync } from "node:child_process"
import { readPage } from "../support/Documents.ts"

const unit = "deploy/petstore@.service"

describe("The files in deploy/", () => {
  const base = "deploy/kubernetes/base"
  it.each<readonly [file: string, ...lines: ReadonlyArray<string>]>([
    [`${base}/petstore.yaml`, "memory: 768Mi", "maxUnavailable: 0, maxSurge: 1", "preStop: { sleep: { seconds: 5 } }"],
    [`${base}/petstore.yaml`, "periodSeconds: 10\ntimeoutSeconds: 5\nfailureThreshold: 3"],
    [`${base}/petstore.yaml`, "readOnlyRootFilesystem: true", "name: petstore, optional: true, key: ADMIN_TOKENS"],
    [`${base}/petstore.yaml`, "readinessProbe:\nhttpGet: { path: /readyz, port: management }\nperiodSeconds: 2\n"],
    [`${base}/petstore.yaml`, "name: ca, mountPath: /etc/petstore/ca,", "- name: ca\nconfigMap: { name: petstore-ca,"],
    [`${base}/petstore.yaml`, "periodSeconds: 2\ntimeoutSeconds: 2\n", "name: http, port: 80, targetPort: http"],
    [`${base}/service-monitor.yaml`, "jobLabel: app.kubernetes.io/name\n", "port: management\n"],
    [`${base}/availability.yaml`, "maxUnavailable: 1", "maxReplicas: 6\n", "name: cpu\n"],
    ["deploy/ha/postgresql.conf", "\nsynchronous_standby_names = 'ANY 1 ("],
    ["deploy/ha/sentinel.conf", "\nsentinel monitor petstore redis-1 6379 2\n"],
    ["deploy/ha/haproxy.cfg", /http-error .*/.exec(readPage("deploy/haproxy.cfg"))?.[0] ?? assert.fail()],
    [`${base}/network-policy.yaml`, "policyTypes: [Ingress, Egress]\ningress:\n- ports:\n- { port: http }\n- from:\n"],
    [`${base}/network-policy.yaml`, "metadata.name: monitoring }\nports:\n- { port: management }\negress:"],
    [`${base}/kustomization.yaml`, "- MANAGEMENT_HOST=0.0.0.0\n", "- DRAIN_SECONDS=2\n"],
    ["deploy/compose.yaml", "read_only: true", "subnet: 192.168.213.0/24", "ADMIN_TOKENS: $"],
    ["deploy/compose.yaml", "image: postgres:17\n", "image: valkey/valkey:8\n"],
    ["deploy/compose.yaml", "image: haproxy:", "\npetstore-1:\n<<: *petstore\n", "\npetstore-2:\n<<: *petstore\n"],
    ["deploy/compose.yaml", "{POSTGRES_PASSWORD:?}@postgres/petstore?sslmode=disable\n", "{ADMIN_TOKEN:?}\n"],
    ["deploy/haproxy.cfg", "option httpchk GET /readyz\n", `"status":503}' hdr Retry-After 1\n`],
    ["deploy/ha/haproxy.cfg", /default-server check .*/.exec(readPage("deploy/haproxy.cfg"))?.[0] ?? assert.fail()],
    ["Dockerfile", "\nUSER node\n", " DATA_DIR=/data ", "\nVOLUME /data\n"],
    ["Dockerfile", "\nARG REVISION=unknown\n", " BUILD_REVISION=$REVISION\n", "/dist/cli.js /usr/local/bin/petstore\n"],
    ["Dockerfile", "\nEXPOSE 8080\n", "-o node -g node -m 0700 /data "],
    ["package.json", `"start": "NODE_COMPILE_CACHE`, "$(test ! -f .env || echo --env-file=.env) src/main.ts"],
    ["package.json", `"petstore": "NODE_COMPILE_CACHE`, "$(test ! -f .env || echo --env-file=.env) src/cli.ts"],
    [
      "deploy/kubernetes/overlays/staging/kustomization.yaml",
      "namespace: petstore-staging\n",
      "- ENVIRONMENT=staging\n"
    ],
    ["deploy/kubernetes/overlays/production/kustomization.yaml", "namespace: petstore-production\n", "=production\n"],
    [
      `${base}/petstore.yaml`,
      "runAsUser: 1000\n",
      "terminationGracePeriodSeconds: 20\n",
      "- configMapRef: { name: petstore }"
    ],
    [`${base}/availability.yaml`, "kind: PodDisruptionBudget\n", "kind: HorizontalPodAutoscaler\n", "minReplicas: 2\n"],
    [
      "deploy/haproxy.cfg",
      "\nbind 127.0.0.1:8405\n",
      "prometheus-exporter if { path /metrics }",
      "\noption forwardfor\n"
    ],
    ["deploy/haproxy.cfg", "timeout client 65s\n", "timeout http-keep-alive 65s\n", "timeout server 30s\n"],
    ["deploy/haproxy.cfg", "petstore-1:8080 check port 9090\n", "petstore-2:8080 check port 9090\n"],
    [unit, "\nEnvironmentFile=/etc/petstore.env\n", "\nExecStart=/usr/bin/node /opt/petstore/dist/main.js\n"],
    ["deploy/compose.yaml", "TRUSTED_PROXIES: 192.168.213.2\n", "{ ipv4_address: 192.168.213.2 } }\n"],
    [unit, " DATA_DIR=/var/lib/petstore ", "DynamicUser=yes\nStateDirectory=petstore\n"],
    ["deploy/petstore", "\nDATA_DIR=/var/lib/petstore exec ", "env-file=/etc/petstore.env /opt/petstore/dist/cli.js "],
    [unit, "StartLimitIntervalSec=5min\nStartLimitBurst=20", "REUSE_PORT=true MANAGEMENT_PORT=%i"]
  ])("keep what the pages promise: %s", (file, ...lines) => {
    for (const line of lines) assert.include(readPage(file).replaceAll(/^ +/gm, ""), line)
  })

  it("open to the pods the ports that docs/install.md lists", () => {
    const ports = [...readPage(`${base}/network-policy.yaml`).matchAll(/port: (\d+)/g)].map(([, port]) => port)
    const [, row = ""] = /network-policy.yaml`.*Out: the ports (.*?)\. /.exec(readPage("docs/install.md")) ?? []
    assert.deepStrictEqual(row.match(/\d+/g), [...new Set(ports)])
  })

  it.each([["22.18.0", 1], ["22.19.0", 0], ["24.0.0", 0]])("contain a unit for Node 22.19: %s", (version, code) => {
    const [, check = ""] = /^ExecStartPre=\/usr\/bin\/node -e "(.*)"$/m.exec(readPage(unit)) ?? []
    const script = `Object.defineProperty(process, "versions", { value: { node: "${version}" } }); ${check}`
    const { status, stderr } = spawnSync(process.execPath, ["-e", script], { encoding: "utf8" })
    assert.deepStrictEqual([status, stderr.startsWith("Node 22.19 or later is needed")], [code, code === 1])
  })
})
