/** Sends reads and creates to the service, and records the outcome of each request. */
import { PgClient } from "@effect/sql-pg"
import { assert } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { load } from "../../bench/load.ts"
import { portOf, type Running, until } from "./Process.ts"

let count = 0

/** Creates a pet with a unique name, or reads `path`. The status is 0 if the connection failed. Times are in ms. */
export const request = (address: string, key: string, path?: string) =>
  Effect.promise(async () => {
    const method = path === undefined ? "POST" : "GET"
    const name = `pet ${process.pid} ${++count}`
    const sentAt = performance.now()
    const outcome = (status: number, body = "", retryAfter: string | null = null) => {
      return { method, status, sentAt, took: performance.now() - sentAt, retryAfter, body, name }
    }
    try {
      const response = await fetch(`${address}${path ?? "/v1/pets"}`, {
        method,
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
        ...path === undefined && { body: JSON.stringify({ name, categoryId: 1 }) },
        signal: AbortSignal.timeout(30_000)
      })
      return outcome(response.status, await response.text(), response.headers.get("retry-after"))
    } catch {
      return outcome(0)
    }
  })

export type Outcome = Effect.Success<ReturnType<typeof request>>

/** Lists pets `requests` times, as fast as possible. Returns the number of responses by status. */
export const list = (services: ReadonlyArray<Running>, key: string, connections: number, requests: number) => {
  const request = `GET /v1/pets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n\r\n`
  const run = () => load({ ports: services.map(portOf), request: () => request, connections, requests })
  return Effect.map(Effect.promise(run), ({ statuses }) => statuses)
}

/** Keeps `callers` requests in flight, half of them creates, until `stop`. `outcomes` has all that have ended. */
export const run = Effect.fnUntraced(function*(address: string, key: string, callers: number) {
  const outcomes: Array<Outcome> = []
  const state = { stopped: false }
  const reads = ["/v1/pets/1", "/v1/pets?limit=5", "/v1/pets?limit=3&cursor=MQ"]
  const caller = Effect.fnUntraced(function*(index: number) {
    for (let i = index; !state.stopped; i++) {
      const outcome = yield* request(address, key, i % 2 === 0 ? undefined : reads[(i >> 1) % reads.length])
      outcomes.push(outcome)
      // After a rejection or without a connection, the caller waits before the next request.
      if (outcome.status === 0 || outcome.status >= 500) yield* Effect.sleep("50 millis")
    }
  })
  const indexes = Array.from({ length: callers }, (_, index) => index)
  const fiber = yield* Effect.forkChild(Effect.forEach(indexes, caller, { concurrency: "unbounded", discard: true }))
  return {
    outcomes,
    /** Waits until `count` more requests have ended. */
    untilMore: (count: number, before = outcomes.length) => until(() => outcomes.length >= before + count),
    /** Waits until a create that is sent from now on has succeeded. */
    untilCreated: Effect.suspend(() => {
      const from = performance.now()
      return until(() => outcomes.some(({ sentAt, status }) => sentAt > from && status === 201))
    }),
    stop: Effect.andThen(Effect.sync(() => void (state.stopped = true)), Fiber.join(fiber))
  }
})

export const acknowledged = (outcomes: ReadonlyArray<Outcome>): ReadonlyArray<string> =>
  outcomes.filter(({ status }) => status === 201).map(({ name }) => name)

export const assertStatuses = (outcomes: ReadonlyArray<Outcome>, ...expected: ReadonlyArray<number>): void =>
  assert.isEmpty(outcomes.filter(({ status }) => !expected.includes(status)))

export const assertStored = <E>(outcomes: ReadonlyArray<Outcome>, database: Layer.Layer<PgClient.PgClient, E>) =>
  Effect.gen(function*() {
    const sql = yield* PgClient.PgClient
    const names = (yield* sql<{ readonly name: string }>`SELECT name FROM pets`).map(({ name }) => name)
    const stored = new Set(names)
    assert.strictEqual(stored.size, names.length)
    assert.isNotEmpty(acknowledged(outcomes))
    assert.deepStrictEqual(acknowledged(outcomes).filter((name) => !stored.has(name)), [])
  }).pipe(Effect.provide(Layer.fresh(database)))
