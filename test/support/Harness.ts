/** Databases for suites, and the whole service on any of them. */
import { NodeCrypto } from "@effect/platform-node"
import { PgClient } from "@effect/sql-pg"
import { Clock, ConfigProvider, Context, Effect, Layer, Logger, Redacted } from "effect"
import type { SecureRandom } from "effect/crypto"
import { HttpServer } from "effect/http"
import { randomUUID } from "node:crypto"
import { cpSync, existsSync, mkdirSync, mkdtempSync, renameSync } from "node:fs"
import { rm } from "node:fs/promises"
import { connect, createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import type { KeyVerifier } from "../../src/api-keys/KeyVerifier.ts"
import * as SqlApiKeys from "../../src/api-keys/SqlApiKeys.ts"
import * as Database from "../../src/database/Database.ts"
import * as EmbeddedDatabase from "../../src/database/EmbeddedDatabase.ts"
import * as ApiServer from "../../src/http/ApiServer.ts"
import { GracefulShutdown } from "../../src/http/Responses.ts"
import { PetRepository } from "../../src/pets/PetRepository.ts"
import * as SqlPetRepository from "../../src/pets/SqlPetRepository.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"

/** Creates a directory. The scope removes it, with retries, because a killed program can still write to it. */
export const temporaryDirectoryIn = (parent: string) =>
  Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(parent, "petstore-test-"))),
    (path) => Effect.promise(() => rm(path, { recursive: true, force: true, maxRetries: 10, retryDelay: 20 }))
  )

export const temporaryDirectory = temporaryDirectoryIn(tmpdir())

const givenPorts = new Set<number>()

/**
 * Returns a free port that it has not returned before. Linux gives ports from 32768 on to outgoing connections, for
 * example to the health checks of a balancer. So one of these would be taken now and then before a program listens.
 */
export const freePort: Effect.Effect<number> = Effect.callback((resume) => {
  const port = 10_000 + Math.floor(Math.random() * 12_000)
  if (givenPorts.has(port)) return resume(freePort)
  givenPorts.add(port)
  const server = createServer().once("error", () => resume(freePort))
  server.listen(port, "127.0.0.1", () => server.close(() => resume(Effect.succeed(port))))
})

/** A client of a database, with one connection. */
export const clientOn = (url: string) => PgClient.layer({ url: Redacted.make(url), maxConnections: 1 })

/**
 * Creates a data directory. The scope removes it. In a test run its database has the schema, as an ended service leaves
 * it. It is a copy of a template for all workers, because making the files takes seconds.
 */
export const dataDirectory = Effect.tap(temporaryDirectory, (directory) =>
  Effect.gen(function*() {
    if (process.env.TEST_TEMPLATE_DIRECTORY === undefined) return
    const template = join(process.env.TEST_TEMPLATE_DIRECTORY, "template")
    if (!existsSync(template)) {
      const own = `${template}-${randomUUID()}`
      mkdirSync(own)
      yield* Effect.scoped(Layer.build(Layer.fresh(Layer.provide(Database.migrate, EmbeddedDatabase.layer(own)))))
      // Another worker may have made the template meanwhile.
      if (!existsSync(template)) renameSync(own, template)
    }
    cpSync(join(template, "pgdata"), join(directory, "pgdata"), { recursive: true })
  }))

/** The embedded database. It is on the live clock, so that a step of `TestClock` does not run its maintenance. */
const pglite = Layer.unwrap(Effect.map(dataDirectory, EmbeddedDatabase.layer)).pipe(
  Layer.provide(Layer.succeed(Clock.Clock, Clock.Clock.defaultValue()))
)

/** Creates a database on the server of `TEST_DATABASE_URL`. The scope drops it. */
export const temporaryDatabaseUrl = Effect.gen(function*() {
  const server = process.env.TEST_DATABASE_URL ?? ""
  const name = `petstore_test_${randomUUID().replaceAll("-", "")}`
  const url = new URL(server)
  url.pathname = `/${name}`
  const run = (statement: string) =>
    Effect.orDie(Effect.provide(Effect.flatMap(PgClient.PgClient, (sql) => sql.unsafe(statement)), clientOn(server)))
  yield* Effect.acquireRelease(run(`CREATE DATABASE ${name}`), () => run(`DROP DATABASE ${name} WITH (FORCE)`))
  return url.href
})

/** A database on PostgreSQL. Its commits do not wait for the disk, because these suites stop no server. */
const postgres = Layer.unwrap(Effect.map(
  temporaryDatabaseUrl,
  (url) =>
    PgClient.layer({ url: Redacted.make(url), multiplex: true, startupParameters: { synchronous_commit: "off" } })
))

/** The databases that a suite runs on. Each layer creates one, with the schema. */
export const databases = [
  { name: "PGlite", skip: false, layer: Database.migrate.pipe(Layer.provideMerge(pglite)) },
  {
    name: "PostgreSQL",
    skip: process.env.TEST_DATABASE_URL === undefined,
    layer: Database.migrate.pipe(Layer.provideMerge(postgres))
  }
]

export const random = NodeCrypto.layerSecureRandom

/** Options of a key whose limits are never reached, so that counting costs time and rejects nothing. */
export const unlimitedKeyOptions = { name: "a", plan: "enterprise", limits: { perMinute: 2e9, perDay: 2e9 } } as const

const newUnlimitedKey = Effect.flatMap(
  ApiKeys,
  (keys) => Effect.map(keys.issue(unlimitedKeyOptions), ({ key }) => Redacted.value(key))
)

/** All stores in memory. */
export const memory = Layer.mergeAll(PetRepository.layerMemory, ApiKeys.layerMemory).pipe(Layer.provideMerge(random))

/** The stores that the service runs on. */
export const stores = [
  { name: "memory", skip: false, layer: memory },
  ...databases.map(({ layer, ...database }) => ({
    ...database,
    layer: Layer.mergeAll(SqlPetRepository.layer, SqlApiKeys.layer).pipe(
      Layer.provide(layer),
      Layer.provideMerge(random)
    )
  }))
]

/** A response as the client received it. */
export type ReceivedResponse = Readonly<{ status: number; headers: Headers; text: string }>

const makeService = Effect.gen(function*() {
  const apiKeys = yield* ApiKeys
  const { address } = yield* HttpServer.HttpServer
  const port = address._tag === "UnixPathAddress" ? 0 : address.port
  const newKey = Effect.orDie(
    Effect.map(apiKeys.issue({ name: "test", plan: "free" }), ({ key }) => Redacted.value(key))
  )
  return {
    /** Calls `path` of the service, with `key` as the bearer token. */
    call: (path: string, { key, ...options }: RequestInit & { readonly key?: string } = {}) =>
      Effect.promise(async (): Promise<ReceivedResponse> => {
        const headers = new Headers(options.headers)
        if (key !== undefined) headers.set("authorization", `Bearer ${key}`)
        const response = await fetch(`http://127.0.0.1:${port}${path}`, { ...options, headers })
        return { status: response.status, headers: response.headers, text: await response.text() }
      }),
    /** Sends bytes and returns the response once the service closes the connection. */
    send: (bytes: string) => sendBytes(port, bytes),
    /** As `send`, from a client that never closes its side and keeps sending. */
    sendHalfOpen: (bytes: string) => sendBytes(port, bytes, { drip: " ", allowHalfOpen: true }),
    /** As `send`, from a client that half-closes after the bytes. */
    sendAndHalfClose: (bytes: string) => sendBytes(port, bytes, { halfCloses: true }),
    /** As `send`, and sends `drip` every half second after the bytes. `KEY` in `bytes` becomes an API key's header. */
    sendWithDrip: (bytes: string, drip: string) =>
      Effect.flatMap(
        newKey,
        (key) => sendBytes(port, bytes.replace("KEY", `Authorization: Bearer ${key}\r\n`), { drip })
      ),
    /** The port of the service. */
    port,
    /** Issues a key on the Free plan, and returns its secret. */
    newKey,
    /** Issues a key whose limits are never reached, and returns its secret. */
    newUnlimitedKey: Effect.orDie(Effect.provideService(newUnlimitedKey, ApiKeys, apiKeys))
  }
})

/** The running service, called over sockets. */
export class Service extends Context.Service<Service, Effect.Success<typeof makeService>>()("test/Harness/Service") {
  static readonly layer = Layer.effect(Service, makeService)
}

/**
 * Sends bytes to a port and returns the response once the server closes the connection. The client sends `drip` every
 * half second. With `allowHalfOpen` it keeps its side open after the server closes, and `halfCloses` ends it before.
 */
export const sendBytes = (
  port: number,
  bytes: string,
  { allowHalfOpen = false, drip = "", halfCloses = false } = {}
) =>
  Effect.promise(() =>
    new Promise<ReceivedResponse>((resolve, reject) => {
      const socket = connect({ port, host: "127.0.0.1", allowHalfOpen })
      if (halfCloses) socket.end(bytes, "latin1")
      else socket.write(bytes, "latin1")
      const dripTimer = drip === "" ? undefined : setInterval(() => socket.write(drip), 500)
      let received = ""
      socket.setEncoding("utf8").on("data", (chunk: string) => {
        received += chunk
      })
      // A server that closes with unread data resets the connection after its response.
      socket.on("error", (error) => received === "" && reject(error))
      socket.on("close", () => {
        clearInterval(dripTimer)
        resolve(parseResponse(received))
      })
    })
  )

/** Parses a response. */
const parseResponse = (text: string): ReceivedResponse => {
  const end = text.indexOf("\r\n\r\n")
  const [status = "", ...lines] = text.slice(0, end).split("\r\n")
  const headers = lines.map((line): [string, string] => [
    line.slice(0, line.indexOf(":")),
    line.slice(line.indexOf(":") + 1).trim()
  ])
  return { status: Number(status.split(" ")[1]), headers: new Headers(headers), text: text.slice(end + 4) }
}

/** Runs the service on `store`, on a free port, without its log. */
export const service = <E>(
  store: Layer.Layer<PetRepository | ApiKeys | KeyVerifier | SecureRandom.SecureRandom, E>,
  config: Readonly<Record<string, string>> = {},
  draining: Layer.Layer<GracefulShutdown> = GracefulShutdown.layer
) =>
  Service.layer.pipe(
    Layer.provideMerge(ApiServer.layer),
    Layer.provide(draining),
    Layer.provide(Layer.merge(store, RateLimiter.layerMemory)),
    Layer.provide(ConfigProvider.layer(ConfigProvider.fromUnknown({ HOST: "127.0.0.1", PORT: "0", ...config }))),
    Layer.provide(Logger.layer([]))
  )
