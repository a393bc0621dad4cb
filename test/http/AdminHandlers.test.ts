/** Tests the key operations of the management port beside the API port, on every store. */
import { makeCompiler } from "@effect/sql-pg/PgClient"
import { assert, describe, layer } from "@effect/vitest"
import { ConfigProvider, Context, DateTime, Effect, Layer, Logger, Redacted, References, Stream } from "effect"
import type { SecureRandom } from "effect/crypto"
import { Reactivity } from "effect/reactivity"
import { SqlClient } from "effect/sql"
import { AdminToken } from "../../src/api-keys/AdminToken.ts"
import type { ApiKeys } from "../../src/api-keys/ApiKeys.ts"
import type { AuditEntry } from "../../src/api/Audit.ts"
import { AdminClient } from "../../src/client/AdminClient.ts"
import * as ApiServer from "../../src/http/ApiServer.ts"
import * as ManagementServer from "../../src/http/ManagementServer.ts"
import { GracefulShutdown } from "../../src/http/Responses.ts"
import type { PetRepository } from "../../src/pets/PetRepository.ts"
import { RateLimiter } from "../../src/rate-limit/RateLimiter.ts"
import { freePort, type ReceivedResponse, Service, stores } from "../support/Harness.ts"

const token = "adm_0123456789abcdefghijklmnopqrstuvwxyz"

/** A database for the readiness check alone, which is not tested here. */
const noDatabase = Layer.effect(
  SqlClient.SqlClient,
  SqlClient.make({
    acquirer: Effect.die("There is no database"),
    compiler: makeCompiler(),
    driver: "none",
    spanAttributes: []
  })
).pipe(Layer.provide(Reactivity.layer))

/** The management port, called with the admin token. */
class Management extends Context.Service<Management, {
  admin(path: string, options?: RequestInit): Effect.Effect<ReceivedResponse>
  /** The annotations of the log lines at level Info and above, with their `message`. */
  readonly lines: ReadonlyArray<Readonly<Record<string, unknown>>>
}>()("test/http/KeyHandlers/Management") {}

/** Both servers on `store`. */
const serversOn = <E>(store: Layer.Layer<PetRepository | ApiKeys | SecureRandom.SecureRandom, E>) =>
  Layer.unwrap(Effect.map(freePort, (port) => {
    const baseUrl = `http://127.0.0.1:${port}`
    const lines: Array<Readonly<Record<string, unknown>>> = []
    const management = Layer.succeed(Management, {
      lines,
      admin: (path, options = {}) =>
        Effect.promise(async () => {
          const headers = new Headers(options.headers)
          headers.set("authorization", `Bearer ${token}`)
          headers.set("content-type", "application/json")
          const response = await fetch(`${baseUrl}/admin${path}`, { ...options, headers })
          return { status: response.status, headers: response.headers, text: await response.text() }
        })
    })
    return Layer.mergeAll(
      Layer.provide(Service.layer, ApiServer.layer),
      ManagementServer.layer,
      management,
      AdminClient.layer({ baseUrl, token: Redacted.make(token) })
    ).pipe(
      Layer.provide([
        GracefulShutdown.layer,
        Layer.provideMerge(RateLimiter.layerMemory, store),
        Layer.succeed(AdminToken, Redacted.make(token)),
        noDatabase
      ]),
      Layer.provide(ConfigProvider.layer(ConfigProvider.fromUnknown({
        HOST: "127.0.0.1",
        PORT: "0",
        MANAGEMENT_PORT: String(port)
      }))),
      Layer.provide(Logger.layer([Logger.make(({ fiber, message }) => {
        lines.push({ message: String(message), ...fiber.getRef(References.CurrentLogAnnotations) })
      })]))
    )
  }))

const patch = (body: unknown, headers: Readonly<Record<string, string>> = {}): RequestInit => ({
  method: "PATCH",
  body: JSON.stringify(body),
  headers
})

const assertError = ({ status, text }: ReceivedResponse, expected: number, code: string, message = ""): void => {
  assert.strictEqual(status, expected, text)
  const body = JSON.parse(text)
  assert.deepStrictEqual(Object.keys(body), ["code", "message", "status"])
  assert.deepInclude(body, { status: expected, code })
  assert.include(body.message, message)
}

for (const store of stores) {
  describe.skipIf(store.skip)(`Key operations on ${store.name}`, () => {
    layer(serversOn(store.layer), { excludeTestServices: true, timeout: 120_000 })((it) => {
      it.effect("show the limits of a new plan from the next response on, with the used requests of open windows", () =>
        Effect.gen(function*() {
          const { call } = yield* Service
          const admin = yield* AdminClient
          const { id, key } = yield* admin.issue({ name: "grows", plan: "free" })
          const send = Effect.map(
            call("/v1/pets", { key: Redacted.value(key) }),
            ({ headers, status }) => [
              status,
              headers.get("x-ratelimit-limit"),
              headers.get("x-ratelimit-remaining"),
              headers.get("ratelimit-policy")
            ]
          )
          const policy = (minute: number, day: number) => `"minute";q=${minute};w=60, "day";q=${day};w=86400`
          assert.deepStrictEqual(yield* send, [200, "60", "59", policy(60, 1000)])
          yield* admin.update(id, { plan: "pro" })
          assert.deepStrictEqual(yield* send, [200, "300", "298", policy(300, 10_000)])
          const used = (yield* admin.get(id)).usage
          assert.deepInclude(used, { minute: { ...used.minute, limit: 300, remaining: 298 } })
          yield* admin.update(id, { plan: "enterprise", limits: { perMinute: 2, perDay: 9 } })
          assert.deepStrictEqual(yield* send, [429, "2", "0", policy(2, 9)])
          yield* admin.update(id, { limits: { perMinute: 3, perDay: 9 } })
          assert.deepStrictEqual(yield* send, [200, "3", "0", policy(3, 9)])
        }))

      it.effect("are in the log and in the audit log, with the operator and without secrets, and so is a ban", () =>
        Effect.gen(function*() {
          const { call } = yield* Service
          const { admin, lines } = yield* Management
          const client = yield* AdminClient
          const limits = { perMinute: 1, perDay: 100 }
          const { id, key } = yield* client.issue({ name: "a", plan: "enterprise", limits })
          const secret = Redacted.value(key)
          for (let i = 0; i < 5; i++) yield* call("/v1/pets", { key: secret })
          // The begin of a ban is stored in the background.
          let entries: ReadonlyArray<AuditEntry> = []
          while (entries.length < 2) ({ entries } = yield* client.audit({ key: id }))
          const until = (yield* client.get(id)).ban?.until
          const bannedUntil = until && DateTime.formatIso(until)
          const listed = (yield* Stream.runCollect(client.all())).find((one) => one.id === id)
          assert.deepStrictEqual(listed?.ban, { until })
          yield* client.unban(id)
          yield* client.unban(id)
          yield* client.update(id, { name: "b" })
          entries = yield* Stream.runCollect(client.auditAll({ key: id, pageSize: 2 }))
          assert.deepStrictEqual(
            entries.map(({ action, operator, before, after }) => [action, operator, before, after]).slice(0, 4),
            [
              ["update", "admin", { name: "a" }, { name: "b" }],
              ["unban", "admin", { bannedUntil: null }, { bannedUntil: null }],
              ["unban", "admin", { bannedUntil: bannedUntil ?? "" }, { bannedUntil: null }],
              ["ban", null, { bannedUntil: null }, { bannedUntil: bannedUntil ?? "" }]
            ]
          )
          for (const { address } of entries) assert.strictEqual(address, "127.0.0.1")
          const logged = lines.filter(({ keyId, message }) => keyId === id && message !== "request")
          assert.deepStrictEqual(logged.map(({ action, message }) => [message, action]), [
            ["Admin action", "issue"],
            ["Ban began", "ban"],
            ["Admin action", "unban"],
            ["Admin action", "unban"],
            ["Admin action", "update"]
          ])
          assert.deepInclude(logged.at(-1), {
            operator: "admin",
            address: "127.0.0.1",
            before: { name: "a" },
            after: { name: "b" }
          })
          const page = yield* admin(`/audit?key=${id}&limit=2`)
          assert.strictEqual(page.status, 200)
          assert.match(
            page.headers.get("link") ?? "",
            /^<\/admin\/audit\?limit=2&cursor=[\w-]+&key=key_\w+>; rel="next"$/
          )
          assert.deepStrictEqual(JSON.parse(page.text).map(({ action }: AuditEntry) => action), ["update", "unban"])
          for (const text of [JSON.stringify(lines), JSON.stringify(entries)]) {
            assert.notInclude(text, secret.slice(4, -4))
          }
          for (const query of ["limit=0", "limit=101", "cursor=x", "cursor=OTk5OTk5OTk5OTk5OTk5OSAx", "key=%00"]) {
            assertError(yield* admin(`/audit?${query}`), 400, "invalid_request", "query.")
          }
        }))

      it.effect("show the usage of a key by minute and hour, also after its revocation", () =>
        Effect.gen(function*() {
          const { call } = yield* Service
          const { admin } = yield* Management
          const client = yield* AdminClient
          const limits = { perMinute: 1, perDay: 100 }
          const { id, key } = yield* client.issue({ name: "used", plan: "enterprise", limits })
          assert.strictEqual((yield* admin(`/keys/${id}/usage`)).text, "{\"minutes\":[],\"hours\":[]}")
          const before = Math.floor(Date.now() / 60_000)
          // A valid key is charged for a request that is rejected later.
          for (const path of ["/v1/pets?limit=0", "/v1/pets", "/v1/pets", "/v1/pets", "/v1/pets"]) {
            yield* call(path, { key: Redacted.value(key) })
          }
          yield* client.revoke(id)
          yield* call("/v1/pets", { key: Redacted.value(key) })
          const { hours, minutes } = yield* client.usage(id)
          for (const intervals of [minutes, hours]) {
            const sum = (name: "allowed" | "rejected" | "banned") =>
              intervals.reduce((total, each) => total + each[name], 0)
            assert.deepStrictEqual([sum("allowed"), sum("rejected"), sum("banned")], [1, 2, 2])
          }
          assert.include([before, before + 1], (minutes[0]?.from.epochMilliseconds ?? 0) / 60_000)
          assert.strictEqual((hours[0]?.from.epochMilliseconds ?? 1) % 3_600_000, 0)
          assertError(yield* admin("/keys/key_none/usage"), 404, "not_found", "key_none")
        }))

      it.effect("have an ETag, and a change with an If-Match that does not name it gets 412", () =>
        Effect.gen(function*() {
          const { admin } = yield* Management
          const issued = yield* admin("/keys", { method: "POST", body: `{"name":"a","plan":"free"}` })
          const { id } = JSON.parse(issued.text)
          const path = `/keys/${id}`
          assert.deepStrictEqual([issued.status, issued.headers.get("etag")], [201, `"1"`])
          const changed = yield* admin(path, patch({ name: "b" }, { "if-match": `"1"` }))
          assert.deepStrictEqual([changed.status, changed.headers.get("etag")], [200, `"2"`])
          assert.deepInclude(JSON.parse(changed.text), { id, name: "b", version: 2 })
          assert.strictEqual((yield* admin(path)).headers.get("etag"), `"2"`)
          for (const tag of [`"1"`, `W/"2"`, `"1", "3"`]) {
            const rejected = yield* admin(path, patch({ name: "c" }, { "if-match": tag }))
            assertError(rejected, 412, "precondition_failed", "has version 2")
          }
          for (const tag of ["2", "", `"1" "2"`]) {
            const rejected = yield* admin(path, patch({ name: "c" }, { "if-match": tag }))
            assertError(rejected, 400, "invalid_request", "header.if-match: expected * or entity tags")
          }
          for (const tag of ["*", `"1", "3"`]) {
            assert.strictEqual((yield* admin(path, patch({ name: "c" }, { "if-match": tag }))).status, 200)
          }
          const rotated = yield* admin(`${path}/rotate`, { method: "POST" })
          assert.strictEqual(rotated.headers.get("etag"), `"4"`)
          const { update } = yield* AdminClient
          assert.strictEqual((yield* Effect.flip(update(id, { name: "d" }, { version: 3 })))._tag, "PreconditionFailed")
          assert.strictEqual((yield* update(id, { name: "d" }, { version: 4 })).version, 5)
        }))

      it.effect("get 412 for a revocation, a rotation and an end of secrets whose If-Match does not name the version", () =>
        Effect.gen(function*() {
          const { admin } = yield* Management
          const client = yield* AdminClient
          const { id } = yield* client.issue({ name: "a", plan: "free" })
          const requests = [["DELETE", ""], ["POST", "/rotate"], ["DELETE", "/former-secrets"]] as const
          for (const [method, path] of requests) {
            const rejected = yield* admin(`/keys/${id}${path}`, { method, headers: { "if-match": `"7"` } })
            assertError(rejected, 412, "precondition_failed", "has version 1")
          }
          assert.strictEqual((yield* client.get(id)).version, 1)
          assert.strictEqual((yield* Effect.flip(client.rotate(id, { version: 2 })))._tag, "PreconditionFailed")
          assert.strictEqual((yield* client.rotate(id, { version: 1 })).version, 2)
          yield* client.revoke(id, { version: 2 })
        }))

      it.effect("issue no second key for a retry with the same Idempotency-Key: 409 names the first one", () =>
        Effect.gen(function*() {
          const { admin } = yield* Management
          const issue = (name: string, key: string) =>
            admin("/keys", {
              method: "POST",
              body: JSON.stringify({ name, plan: "free", expiresAt: null }),
              headers: { "idempotency-key": key }
            })
          const responses = yield* Effect.all([issue("once", "job-1"), issue("once", "job-1")], { concurrency: 2 })
          const [first, second] = responses.toSorted((a, b) => a.status - b.status)
          assert.strictEqual(first?.status, 201)
          const { id } = JSON.parse(first?.text ?? "")
          for (const retry of [second, yield* issue("another", `"job-1"`)]) {
            if (retry !== undefined) assertError(retry, 409, "conflict", `Key ${id} was issued with this`)
          }
          assert.strictEqual((yield* issue("once", "job-2")).status, 201)
          const listed = yield* Stream.runCollect(
            Effect.map(AdminClient, (client) => client.all({ search: "once" })).pipe(
              Stream.unwrap
            )
          )
          assert.lengthOf(listed, 2)
          const entries = JSON.parse((yield* admin("/audit?limit=100")).text)
          assert.lengthOf(entries.filter(({ after }: AuditEntry) => after?.name === "once"), 2)
          assertError(yield* issue("bad", "a b"), 400, "invalid_request", "header.idempotency-key")
        }))

      it.effect("show the former secrets of a key that still work, and end them at once", () =>
        Effect.gen(function*() {
          const { call } = yield* Service
          const client = yield* AdminClient
          const first = yield* client.issue({ name: "a", plan: "free" })
          const { id } = first
          const second = yield* client.rotate(id, { gracePeriod: "1 hour" })
          const { formerSecrets: [former], version } = yield* client.get(id)
          assert.isAbove(former?.endsAt.epochMilliseconds ?? 0, Date.now() + 3_500_000)
          const statuses = Effect.forEach([first, second], ({ key }) =>
            Effect.map(call("/v1/pets", { key: Redacted.value(key) }), ({ status }) => status))
          assert.deepStrictEqual(yield* statuses, [200, 200])
          yield* client.endFormerSecrets(id)
          assert.deepStrictEqual(yield* statuses, [401, 200])
          assert.deepInclude(yield* client.get(id), { formerSecrets: [], version: version + 1 })
          // There is nothing left to end, so this changes nothing.
          yield* client.endFormerSecrets(id)
          const { entries } = yield* client.audit({ key: id })
          assert.deepStrictEqual(
            entries.map(({ action }) =>
              action
            ),
            ["end-former", "rotate", "issue"]
          )
          assert.strictEqual((yield* client.get(id)).version, version + 1)
          yield* client.revoke(id)
          assert.strictEqual((yield* Effect.flip(client.endFormerSecrets(id)))._tag, "Conflict")
        }))

      it.effect("list the newest keys first, and the banned keys alone", () =>
        Effect.gen(function*() {
          const { call } = yield* Service
          const { admin } = yield* Management
          const client = yield* AdminClient
          const limits = { perMinute: 1, perDay: 100 }
          const issued = yield* Effect.forEach(["ordered 1", "ordered 2", "ordered 3"], (name) =>
            client.issue({ name, plan: "enterprise", limits }))
          const names = (filter: Parameters<typeof client.all>[0]) =>
            Effect.map(Stream.runCollect(client.all({ search: "ordered", pageSize: 2, ...filter })), (keys) =>
              keys.map(({ name }) =>
                name
              ))
          assert.deepStrictEqual(yield* names({ order: "newest" }), ["ordered 3", "ordered 2", "ordered 1"])
          assert.deepStrictEqual(yield* names({ order: "oldest" }), ["ordered 1", "ordered 2", "ordered 3"])
          const newest = yield* admin("/keys?order=newest&limit=1")
          assert.deepInclude(JSON.parse(newest.text)[0], { name: "ordered 3" })
          assert.match(newest.headers.get("link") ?? "", /order=newest/)

          assert.deepStrictEqual(yield* names({ state: "banned" }), [])
          for (const { key } of issued.slice(1)) {
            for (let i = 0; i < 5; i++) {
              yield* call("/v1/pets", { key: Redacted.value(key) })
            }
          }
          assert.deepStrictEqual(yield* names({ state: "banned" }), ["ordered 2", "ordered 3"])
          yield* client.unban(issued[1]?.id ?? "")
          assert.deepStrictEqual(yield* names({ state: "banned", order: "newest" }), ["ordered 3"])
          assert.strictEqual((yield* client.get(issued[2]?.id ?? "")).counting, "own")
        }))

      it.effect("reject a name without a visible character, and an unknown query parameter", () =>
        Effect.gen(function*() {
          const { admin } = yield* Management
          const issue = (name: string) =>
            admin("/keys", { method: "POST", body: JSON.stringify({ name, plan: "free" }) })
          for (const name of [" ", "\u200B\u200D", "\u2800", "\u3164", "\u202E\u2069", "\uFE0F"]) {
            assertError(
              yield* issue(name),
              400,
              "invalid_request",
              "body.name: expected a name with a visible character"
            )
          }
          for (const name of ["\u200Fשלום", "👨‍👩‍👧", "!"]) assert.strictEqual((yield* issue(name)).status, 201)
          for (const path of ["/keys?statee=active", "/audit?keys=key_a"]) {
            assertError(yield* admin(path), 400, "invalid_request", "query.")
          }
        }))

      it.effect("list the keys that meet a filter, and keep the filter in the link to the next page", () =>
        Effect.gen(function*() {
          const { admin } = yield* Management
          const client = yield* AdminClient
          const ids: Array<string> = []
          for (let i = 0; i < 3; i++) ids.push((yield* client.issue({ name: `Listed & ${i}`, plan: "business" })).id)
          const found = yield* Stream.runCollect(
            client.all({ plan: "business", state: "active", search: "listed &", pageSize: 2 })
          )
          assert.deepStrictEqual(found.map(({ id }) => id).toSorted(), ids.toSorted())
          assert.isTrue(found.every(({ ban }) => ban === null))
          const page = yield* admin("/keys?limit=2&plan=business&search=listed%20%26")
          assert.match(page.headers.get("link") ?? "", /plan=business.*search=listed%20%26/)
          const invalid = [["plan=gold", "query.plan"], ["state=gone", "query.state"], ["order=best", "query.order"], [
            "search=",
            "query.search"
          ]]
          for (const [query, message] of [...invalid, ["search=%00", "query.search"]]) {
            assertError(yield* admin(`/keys?${query}`), 400, "invalid_request", message)
          }
        }))

      it.effect("reject an invalid change with 400, and name each field", () =>
        Effect.gen(function*() {
          const { admin } = yield* Management
          const { id } = yield* Effect.flatMap(AdminClient, (client) => client.issue({ name: "a", plan: "free" }))
          const limits = { perMinute: 1, perDay: 1 }
          const invalid: ReadonlyArray<readonly [unknown, string]> = [
            [null, "body: expected object"],
            [{ name: "", plan: "gold" }, "body.plan: expected free, pro, business or enterprise"],
            [{ name: null }, "body.name: expected string"],
            [{ plan: null }, "body.plan"],
            [{ limits: null }, "body.limits"],
            [{ limits: { perMinute: 1 } }, "body.limits.perDay: required"],
            [{ limits }, "body.limits: fixed on plan free"],
            [{ plan: "pro", limits }, "body.limits: fixed on plan pro"],
            [{ plan: "enterprise" }, "body.limits: required on plan enterprise"],
            [{ expiresAt: "2020-01-01" }, "body.expiresAt: expected an instant in the future"],
            [{ expiresAt: "tomorrow" }, "body.expiresAt: expected an instant like"],
            [{ expiresat: null }, "body.expiresat"],
            [{ revokedAt: null }, "body.revokedAt"]
          ]
          for (const [body, message] of invalid) {
            assertError(yield* admin(`/keys/${id}`, patch(body)), 400, "invalid_request", message)
          }
          assertError(yield* admin("/keys/key_none", patch({})), 404, "not_found")
          assert.strictEqual((yield* admin(`/keys/${id}`, patch({}))).status, 200)
          yield* admin(`/keys/${id}`, { method: "DELETE" })
          assertError(yield* admin(`/keys/${id}`, patch({ name: "b" })), 409, "conflict")
        }))
    })
  })
}
