/** Tests the bounds of the memory that clients can make the process use. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync } from "node:fs"
import { connect, type Socket } from "node:net"
import { temporaryDatabaseUrl, temporaryDirectory } from "../support/Harness.ts"
import { type Running, start } from "../support/Process.ts"

const ADMIN_TOKEN = "adm_0123456789abcdef"

const issue = (service: Running, limits: { readonly perMinute: number; readonly perDay: number }) =>
  Effect.promise(async (): Promise<string> => {
    const response = await fetch(`${service.management}/admin/keys`, {
      method: "POST",
      headers: { "authorization": `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
      body: JSON.stringify({ name: "test", plan: "enterprise", limits })
    })
    return JSON.parse(await response.text()).key
  })

const megabytes = ({ process }: Running): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${process.pid}/status`, "utf8"))?.[1]) / 1024

/** Opens `count` clients that send `bytes` from 30 addresses and never read. The scope destroys them. */
const openSilentClients = (service: Running, count: number, bytes: (index: number) => string) =>
  Effect.acquireRelease(
    Effect.sync(() =>
      Array.from({ length: count }, (_, index): Socket => {
        const localAddress = `127.0.0.${2 + index % 30}`
        const socket = connect({ port: Number(new URL(service.address).port), host: "127.0.0.1", localAddress })
        return socket.on("error", () => {}).pause().on("connect", () => socket.write(bytes(index)))
      })
    ),
    (sockets) => Effect.sync(() => sockets.forEach((socket) => socket.destroy()))
  )

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("The memory of the process", () => {
  it.live(
    "stays bounded while clients never read what they request, and others are served",
    () =>
      Effect.gen(function*() {
        // The embedded database frees memory of its own after the start.
        const service = yield* start({
          DATABASE_URL: yield* temporaryDatabaseUrl,
          DATA_DIR: yield* temporaryDirectory,
          ADMIN_TOKEN,
          LOG_LEVEL: "warn"
        })
        const key = yield* issue(service, { perMinute: 1e6, perDay: 1e6 })
        const status = Effect.promise(() =>
          fetch(`${service.address}/v1/pets?limit=1`, { headers: { authorization: `Bearer ${key}` } })
            .then((response) => response.text().then(() => response.status))
        )
        // The longest name, of characters that JSON writes in six. A page of 100 has 600 KB.
        const body = JSON.stringify({ name: "\u0001".repeat(1_000), categoryId: 1 })
        const post = `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n` +
          `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`
        yield* Effect.promise(async () => {
          for (let i = 0; i < 150; i++) {
            const headers = { "authorization": `Bearer ${key}`, "content-type": "application/json" }
            await fetch(`${service.address}/v1/pets`, { method: "POST", headers, body })
          }
          await fetch(`${service.address}/docs`).then((response) => response.text())
        })
        const keys = yield* Effect.replicateEffect(issue(service, { perMinute: 60, perDay: 1_000 }), 10)
        const page = (index: number) =>
          `GET /v1/pets?limit=100&cursor=${Buffer.from(String(1 + index % 40)).toString("base64url")} ` +
          `HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${keys[index % 10]}\r\n\r\n`

        const trials = [
          [180, () => "GET /docs HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(10)],
          [60, (index: number) => page(index).repeat(10)],
          // A client that sends faster than it reads is paused.
          [60, () => post.repeat(200)]
        ] as const
        for (const [count, bytes] of trials) {
          const before = megabytes(service)
          yield* Effect.scoped(Effect.gen(function*() {
            yield* openSilentClients(service, count, bytes)
            for (let i = 0; i < 20; i++) {
              assert.strictEqual(yield* status, 200)
              // The clients request from 84 MB to 5.8 GB. V8 decides when it collects garbage, which is most of the growth.
              assert.isBelow(megabytes(service) - before, 400)
              yield* Effect.sleep("100 millis")
            }
          }))
        }
      }),
    180_000
  )
})
