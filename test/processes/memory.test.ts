/** Tests the bounds of the memory that clients can make the process use. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { readFileSync } from "node:fs"
import { connect, type Socket } from "node:net"
import { temporaryDatabaseUrl, temporaryDirectory } from "../support/Harness.ts"
import { type Running, start } from "../support/Process.ts"

const ADMIN_TOKEN = "adm_0123456789abcdef"
const Issued = Schema.Struct({ key: Schema.String })

const issue = (service: Running, plan: object) =>
  Effect.promise(async () => {
    const response = await fetch(`${service.management}/admin/keys`, {
      method: "POST",
      headers: { "authorization": `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
      body: JSON.stringify({ name: "test", ...plan })
    })
    return response.json()
  }).pipe(Effect.flatMap(Schema.decodeUnknownEffect(Issued)), Effect.map(({ key }) => key))

const megabytes = ({ process }: Running): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${process.pid}/status`, "utf8"))?.[1]) / 1024

/** Opens clients that send `bytes` from several addresses and never read. The scope destroys them. */
const openSilentClients = (
  service: Running,
  clients: ReadonlyArray<{ readonly bytes: string; readonly localAddress: string }>
) =>
  Effect.acquireRelease(
    Effect.sync(() =>
      clients.map(({ bytes, localAddress }): Socket => {
        const socket = connect({ port: Number(new URL(service.address).port), host: "127.0.0.1", localAddress })
        return socket.on("error", () => {}).pause().on("connect", () => socket.write(bytes))
      })
    ),
    (sockets) => Effect.sync(() => sockets.forEach((socket) => socket.destroy()))
  )

/** Returns the largest growth of the process within 8 seconds, in megabytes, while `other` runs repeatedly. */
const growth = Effect.fnUntraced(function*(service: Running, before: number, other: Effect.Effect<number>) {
  let highest = before
  const statuses = new Set<number>()
  for (const startedAt = performance.now(); performance.now() - startedAt < 8_000;) {
    statuses.add(yield* other)
    highest = Math.max(highest, megabytes(service))
    yield* Effect.sleep("50 millis")
  }
  return { megabytes: highest - before, statuses }
})

const status = (service: Running, key: string) =>
  Effect.promise(() =>
    fetch(`${service.address}/v1/pets?limit=1`, { headers: { authorization: `Bearer ${key}` } })
      .then((response) => response.text().then(() => response.status))
  )

/** A service on PostgreSQL, because the embedded database frees memory of its own after the start. */
const service = Effect.gen(function*() {
  const DATABASE_URL = yield* temporaryDatabaseUrl
  return yield* start({ DATABASE_URL, DATA_DIR: yield* temporaryDirectory, ADMIN_TOKEN })
})

const settled = Effect.sleep("500 millis")

describe.skipIf(process.env.TEST_DATABASE_URL === undefined)("The memory of the process", () => {
  it.live(
    "grows by at most 150 MB while 180 clients request /docs and never read, and others are served",
    () =>
      Effect.gen(function*() {
        const running = yield* service
        const key = yield* issue(running, { plan: "enterprise", limits: { perMinute: 1e6, perDay: 1e6 } })
        yield* status(running, key)
        yield* settled
        const before = megabytes(running)
        yield* openSilentClients(
          running,
          Array.from({ length: 180 }, (_, index) => ({
            bytes: "GET /docs HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(10),
            localAddress: `127.0.0.${2 + index % 30}`
          }))
        )
        const grown = yield* growth(running, before, status(running, key))
        assert.deepStrictEqual([...grown.statuses], [200])
        assert.isBelow(grown.megabytes, 150)
      }),
    30_000
  )

  it.live(
    "grows by at most 200 MB while 10 Free keys request long pages and never read, and others are served",
    () =>
      Effect.gen(function*() {
        const running = yield* service
        const key = yield* issue(running, { plan: "enterprise", limits: { perMinute: 1e6, perDay: 1e6 } })
        yield* Effect.promise(async () => {
          for (let i = 0; i < 40; i++) {
            await fetch(`${running.address}/v1/pets`, {
              method: "POST",
              headers: { "authorization": `Bearer ${key}`, "content-type": "application/json" },
              body: `{"name":"${"\\u0001".repeat(10_000)}","categoryId":1}`
            })
          }
        })
        const keys = yield* Effect.replicateEffect(issue(running, { plan: "free" }), 10)
        yield* settled
        const before = megabytes(running)
        yield* openSilentClients(
          running,
          keys.flatMap((free, client) =>
            Array.from({ length: 6 }, (_, index) => ({
              bytes: Array.from({ length: 10 }, (_, page) =>
                `GET /v1/pets?limit=${30 + page % 5}${
                  index === 0 ? "" : `&cursor=${Buffer.from(String(index)).toString("base64url")}`
                } ` +
                `HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${free}\r\n\r\n`).join(""),
              localAddress: `127.0.0.${2 + client}`
            }))
          )
        )
        const grown = yield* growth(running, before, status(running, key))
        assert.deepStrictEqual([...grown.statuses], [200])
        assert.isBelow(grown.megabytes, 200)
      }),
    30_000
  )

  it.live(
    "grows by at most 250 MB while one key pipelines large bodies on 60 connections, and others are served",
    () =>
      Effect.gen(function*() {
        const running = yield* service
        const key = yield* issue(running, { plan: "enterprise", limits: { perMinute: 1e6, perDay: 1e6 } })
        const business = yield* issue(running, { plan: "business" })
        yield* status(running, key)
        yield* settled
        const before = megabytes(running)
        const body = JSON.stringify({ name: "x".repeat(59_000), categoryId: 1 })
        const post = `POST /v1/pets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${business}\r\n` +
          `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`
        yield* openSilentClients(
          running,
          Array.from({ length: 60 }, (_, index) => ({
            bytes: post.repeat(200),
            localAddress: `127.0.0.${2 + index % 30}`
          }))
        )
        const grown = yield* growth(running, before, status(running, key))
        assert.deepStrictEqual([...grown.statuses], [200])
        assert.isBelow(grown.megabytes, 250)
      }),
    30_000
  )

  it.live(
    "grows by at most 250 MB while 10 Free keys request pages of names of 4,000 characters and never read",
    () =>
      Effect.gen(function*() {
        const running = yield* service
        const key = yield* issue(running, { plan: "enterprise", limits: { perMinute: 1e6, perDay: 1e6 } })
        yield* Effect.promise(async () => {
          for (let i = 0; i < 150; i++) {
            await fetch(`${running.address}/v1/pets`, {
              method: "POST",
              headers: { "authorization": `Bearer ${key}`, "content-type": "application/json" },
              body: JSON.stringify({ name: "x".repeat(4_000), categoryId: 1 })
            })
          }
        })
        const keys = yield* Effect.replicateEffect(issue(running, { plan: "free" }), 10)
        yield* settled
        const before = megabytes(running)
        yield* openSilentClients(
          running,
          keys.flatMap((free, client) =>
            Array.from({ length: 4 }, (_, index) => ({
              bytes: Array.from({ length: 15 }, (_, page) =>
                `GET /v1/pets?limit=${61 + page % 4}&cursor=${
                  Buffer.from(String(1 + (index * 15 + page) % 80)).toString("base64url")
                } HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${free}\r\n\r\n`).join(""),
              localAddress: `127.0.0.${2 + client}`
            }))
          )
        )
        const grown = yield* growth(running, before, status(running, key))
        assert.deepStrictEqual([...grown.statuses], [200])
        // V8 decides when it collects garbage, so the same load takes from 95 to 216 MB.
        assert.isBelow(grown.megabytes, 250)
      }),
    30_000
  )
})
