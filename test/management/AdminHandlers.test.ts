import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { DateTime, Effect, Fiber, Layer, Redacted, Stream } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient, type SqlConnection } from "effect/sql"
import { TestClock } from "effect/testing"
import { AuditLog } from "../../src/api-keys/AuditLog.ts"
import { ServiceUnavailable } from "../../src/api/Errors.ts"
import { withChecksum } from "../../src/api/Secrets.ts"
import { AdminClient } from "../../src/client/AdminClient.ts"
import { besideClient, describeOnEach, memory, random, sqlApiKeys, stores } from "../support/Databases.ts"
import { send, until, untilTrue } from "../support/Process.ts"
import { Service } from "../support/Service.ts"
import { assertError, Management, serversOn } from "./Management.ts"

const listPets = (key: Redacted.Redacted) =>
  Effect.flatMap(Service, ({ call }) => call("/v1/pets", { key: Redacted.value(key) }))

const ownLimits = { perMinute: 1, perDay: 100 }

/** Keys that are created in one millisecond are in the order of their ids. */
const nextMillisecond = Effect.suspend(() => {
  const now = Date.now()
  return until(() => Date.now() > now)
})

/** Changes of a key that are invalid, and the message for each. */
const invalidChanges: ReadonlyArray<readonly [change: unknown, message: string]> = [
  [null, "body: expected object"],
  [{ name: "", plan: "gold" }, "body.plan: expected one of free, pro, business or enterprise"],
  [{ name: null }, "body.name: expected string"],
  ...[" ", "\u200B\u200D", "\u2800", "\u3164", "\u202E\u2069", "\uFE0F"].map((name) =>
    [{ name }, "body.name: expected a name with at least one visible character"] as const
  ),
  [{ plan: null }, "body.plan"],
  [{ limits: null }, "body.limits"],
  [{ limits: { perMinute: 1 } }, "body.limits.perDay: required"],
  [{ plan: "enterprise", limits: { perMinute: 2, perDay: 1 } }, "body.limits: expected perMinute to be at most perDay"],
  [{ enabled: null }, "body.enabled: expected boolean"],
  [{ limits: ownLimits }, "body.limits: cannot be set on plan free"],
  [{ plan: "pro", limits: ownLimits }, "body.limits: cannot be set on plan pro"],
  [{ plan: "enterprise" }, "body.limits: required on plan enterprise"],
  [{ expiresAt: "2020-01-01" }, "body.expiresAt: expected a time in the future"],
  [{ expiresAt: "tomorrow" }, "body.expiresAt: expected a time like"],
  [{ expires_at: null, x: 1 }, "body.expires_at: unknown field; did you mean \"expiresAt\"?; body.x: unknown field."],
  [{ plan: "enterprise", limits: { ...ownLimits, per_dya: 1 } }, "per_dya: unknown field; did you mean \"perDay\"?"],
  [{ revokedAt: null, namexyz: "" }, "body.revokedAt: unknown field; body.namexyz: unknown field."],
  [Object.fromEntries(Array.from({ length: 12 }, (_, i) => [i, i])), "body.9: unknown field; and 2 more."]
]

const invalidQueries = {
  keys: "plan=gold state=gone order=best search= search=%00 statee=active expiresBefore=soon expiresBefore=2026-02-30",
  audit:
    "keys=a limit=0 limit=101 cursor=x cursor=OTk5OTk5OTk5OTk5OTk5OSAx key=%00 operator=%00 action=gone since=now until=2026-02-30",
  usage: "by=plan window=week limit=101"
}

it.effect("A ban stays if its lifting cannot be recorded, and after a change of the plan", () => {
  const failing = Effect.map(AuditLog, (audit): AuditLog["Service"] => {
    return { ...audit, appendUnban: () => Effect.fail(new ServiceUnavailable()) }
  })
  return Effect.gen(function*() {
    const client = yield* AdminClient
    const { id, key } = yield* client.issue({ name: "a", plan: "enterprise", limits: ownLimits })
    yield* Effect.replicateEffect(listPets(key), 5)
    assert.strictEqual((yield* Effect.flip(client.unban(id)))._tag, "ServiceUnavailable")
    yield* client.update(id, { plan: "pro" })
    assert.isNotNull((yield* client.get(id)).ban)
  }).pipe(Effect.provide(serversOn(Layer.provideMerge(Layer.effect(AuditLog, failing), memory))))
})

it.effect("Operations of several statements share one deadline of three seconds", () =>
  Effect.gen(function*() {
    let started = 0
    const execute = () => Effect.andThen(Effect.sync(() => started++), Effect.delay(Effect.succeed([]), "1600 millis"))
    const acquirer = Effect.succeed({ execute } as unknown as SqlConnection.Connection)
    const options = { acquirer, compiler: PgClient.makeCompiler(), spanAttributes: [], driver: "slow" }
    const slow = Layer.effect(SqlClient.SqlClient, Effect.provide(SqlClient.make(options), Reactivity.layer))
    const keys = Layer.provideMerge(Layer.fresh(sqlApiKeys), Layer.mergeAll(slow, besideClient, random))
    yield* Effect.gen(function*() {
      const { admin } = yield* Management
      // Both expire in the background at the start.
      yield* TestClock.adjust("2 seconds")
      for (const path of ["/audit", "/keys?state=banned", "/usage"]) {
        const before = started
        const response = yield* Effect.forkChild(admin("GET", path))
        yield* until(() => started > before)
        yield* TestClock.adjust("1600 millis")
        yield* until(() => started > before + 1)
        yield* TestClock.adjust("1399 millis")
        assert.isUndefined(response.pollUnsafe())
        yield* TestClock.adjust("1 millis")
        assert.strictEqual((yield* Fiber.join(response)).status, 503, path)
      }
    }).pipe(Effect.provide(serversOn(Layer.merge(memory, keys))))
  }))

const servers = stores.map((store) => ({ ...store, isLive: true, layer: serversOn(store.layer) }))

describeOnEach(servers, "Key operations", (it) => {
  it.effect("show the limits of a new plan from the next response on, and keep the counts of open windows", () =>
    Effect.gen(function*() {
      const client = yield* AdminClient
      const { id, key } = yield* client.issue({ name: "grows", plan: "free" })
      const names = ["x-ratelimit-remaining", "ratelimit-policy"]
      const limits = Effect.map(listPets(key), ({ headers, status }) => [status, ...names.map((n) => headers.get(n))])
      const policy = (minute: number, day: number) => `"minute";q=${minute};w=60, "day";q=${day};w=86400`
      assert.deepStrictEqual(yield* limits, [200, "59", policy(60, 1000)])
      yield* client.update(id, { plan: "pro" })
      assert.deepStrictEqual(yield* limits, [200, "298", policy(300, 10_000)])
      const { day, minute } = (yield* client.get(id)).usage
      assert.deepInclude(minute, { limit: 300, remaining: 298 })
      assert.deepInclude(day, { limit: 10_000, remaining: 9_998 })
      yield* client.update(id, { plan: "enterprise", limits: { perMinute: 2, perDay: 9 } })
      assert.deepStrictEqual(yield* limits, [429, "0", policy(2, 9)])
      yield* client.update(id, { limits: { perMinute: 3, perDay: 9 } })
      assert.deepStrictEqual(yield* limits, [200, "0", policy(3, 9)])
      // With both windows used up, the wait is for the day.
      yield* client.update(id, { limits: { perMinute: 3, perDay: 3 } })
      assert.isAbove(Number((yield* listPets(key)).headers.get("retry-after")), 60)
    }))

  it.effect("accept a name of 255 code points, and find its key by it", () =>
    Effect.gen(function*() {
      const client = yield* AdminClient
      const { admin } = yield* Management
      const name = "🐕".repeat(255)
      const { id } = yield* client.issue({ name, plan: "free" })
      assert.deepStrictEqual((yield* client.list({ search: name })).keys.map((key) => key.id), [id])
      const longer = `${name}🐕`
      const rejected = [
        yield* admin("POST", "/keys", { name: longer, plan: "free" }),
        yield* admin("GET", `/keys?search=${encodeURIComponent(longer)}`)
      ]
      assert.deepStrictEqual(rejected.map(({ status }) => status), [400, 400])
    }))

  it.effect("let the former and the new secret of a rotated key share its limits", () =>
    Effect.gen(function*() {
      const client = yield* AdminClient
      const { id, key } = yield* client.issue({ name: "rotated", plan: "free" })
      const rotated = yield* client.rotate(id, { gracePeriod: "10 minutes" })
      const left = yield* Effect.forEach([key, rotated.key, key], (secret) =>
        Effect.map(listPets(secret), ({ headers }) => headers.get("x-ratelimit-remaining")))
      assert.deepStrictEqual(left, ["59", "58", "57"])
    }))

  it.effect("are in both logs, with the operator and without secrets, as is a ban, and requests are counted", () =>
    Effect.gen(function*() {
      const { admin, lines } = yield* Management
      const { call } = yield* Service
      const client = yield* AdminClient
      // The counts of a day begin at midnight.
      yield* until(() => Date.now() % 86_400_000 < 86_390_000)
      const { id, key } = yield* client.issue({ name: "a", plan: "enterprise", limits: ownLimits })
      // A valid key is charged for a request that is rejected later.
      yield* call("/v1/pets?limit=0", { key: Redacted.value(key) })
      yield* Effect.replicateEffect(listPets(key), 4)
      // The begin of a ban is stored in the background.
      yield* untilTrue(Effect.map(client.audit({ key: id }), ({ entries }) => entries.length > 1))
      const { ban } = yield* client.get(id)
      const bannedUntil = ban && DateTime.formatIso(ban.until)
      yield* client.unban(id)
      yield* client.unban(id)
      assert.strictEqual((yield* client.get(id)).usage.minute.remaining, 0, "the counts stay")
      yield* client.update(id, { name: "b" })
      const { body: [top] } = yield* admin("GET", "/usage?by=banned&window=day&limit=1")
      assert.deepInclude(top, { keyId: id, name: "b", plan: "enterprise", allowed: 1, rejected: 2, banned: 2 })
      const entries = yield* Stream.runCollect(client.auditAll({ key: id, pageSize: 2 }))
      const changes = entries.map(({ action, operator, before, after }) => [action, operator, before, after])
      assert.deepStrictEqual(changes.slice(0, 3), [
        ["update", "admin", { name: "a" }, { name: "b" }],
        ["unban", "admin", { bannedUntil }, { bannedUntil: null }],
        ["ban", null, { bannedUntil: null }, { bannedUntil }]
      ])
      for (const { address, keyName } of entries) assert.deepStrictEqual([address, keyName], ["127.0.0.1", "b"])
      const logged = lines.filter(({ keyId, message }) => keyId === id && message !== "request")
      const messages = logged.map(({ action, message }) => [message, action].join(": "))
      const actions = ["issue", "unban", "update"].map((action) => `Admin action: ${action}`)
      assert.deepStrictEqual(messages, actions.toSpliced(1, 0, "Ban began: ban"))
      const change = { operator: "admin", address: "127.0.0.1", before: { name: "a" }, after: { name: "b" } }
      assert.deepInclude(logged.at(-1), change)
      assert.isTrue(logged.every(({ level }) => level === "Info"))
      assert.notInclude(JSON.stringify([lines, entries]), Redacted.value(key).slice(4, -4))
    }))

  it.effect("leave one entry for each lifted ban, although many operators lift it at once", () =>
    Effect.gen(function*() {
      const client = yield* AdminClient
      const { id, key } = yield* client.issue({ name: "lifted", plan: "enterprise", limits: ownLimits })
      for (const bans of [1, 2, 3]) {
        yield* Effect.replicateEffect(listPets(key), 5)
        yield* Effect.replicateEffect(client.unban(id), 6, { concurrency: "unbounded" })
        assert.isNull((yield* client.get(id)).ban)
        const { entries } = yield* client.audit({ key: id, action: "unban" })
        assert.lengthOf(entries, bans)
      }
    }))

  it.effect("have an ETag, and get 412 with an If-Match that does not name the version", () =>
    Effect.gen(function*() {
      const { admin } = yield* Management
      const client = yield* AdminClient
      const issued = yield* admin("POST", "/keys", { name: "a", plan: "free" })
      const { id } = issued.body
      const call = (line: string, tag?: string, body?: object) => {
        const [method = "", path = ""] = line.split(" ")
        return admin(method, `/keys/${id}${path}`, body, tag === undefined ? {} : { "if-match": tag })
      }
      const change = (tag: string) => call("PATCH", tag, { name: "b" })
      const changed = yield* change(`"1"`)
      assert.deepInclude(changed.body, { id, name: "b", version: 2 })
      const tags = [issued, changed, yield* call("GET")].map(({ headers }) => headers.get("etag"))
      assert.deepStrictEqual(tags, [`"1"`, `"2"`, `"2"`])
      const outdated = [
        ...[`"1"`, `W/"2"`, `"1", "3"`, `"x,*,y"`, `"*"`].map(change),
        ...["DELETE", "POST /rotate", "DELETE /former-secrets"].map((line) => call(line, `"7"`))
      ]
      for (const rejected of outdated) assertError(yield* rejected, 412, "precondition_failed", "has version 2")
      for (const tag of ["2", "", `"1" "2"`, `*, "2"`]) {
        assertError(yield* change(tag), 400, "invalid_request", "header.if-match: expected * or entity tags")
      }
      for (const tag of ["*", `"1", "2"`]) assert.strictEqual((yield* change(tag)).status, 200)
      assert.strictEqual((yield* call("POST /rotate")).headers.get("etag"), `"3"`)
      assert.isEmpty((yield* client.get(id)).formerSecrets)
      const outdatedCalls = [
        client.update(id, { name: "c" }, { version: 2 }),
        client.rotate(id, { version: 2 }),
        client.endFormerSecrets(id, { version: 2 }),
        client.revoke(id, { version: 2 })
      ]
      for (const call of outdatedCalls) assert.strictEqual((yield* Effect.flip(call))._tag, "PreconditionFailed")
      yield* client.revoke(id, { version: 3 })
    }))

  it.effect("issue no second key for a retry with the same Idempotency-Key: 409 names the first one", () =>
    Effect.gen(function*() {
      const { admin } = yield* Management
      const issue = (name: string, key: string) =>
        admin("POST", "/keys", { name, plan: "free", expiresAt: null }, { "idempotency-key": key })
      const responses = yield* Effect.all([issue("once", "job-1"), issue("once", "job-1")], { concurrency: 2 })
      const [first, second = assert.fail()] = responses.toSorted((a, b) => a.status - b.status)
      assert.strictEqual(first?.status, 201)
      for (const retry of [second, yield* issue("another", `"job-1"`)]) {
        assertError(retry, 409, "conflict", `Key ${first?.body.id} was issued with this`)
      }
      assert.strictEqual((yield* issue("once", "job-2")).status, 201)
      const { entries } = yield* (yield* AdminClient).audit()
      assert.lengthOf(entries.filter(({ after }) => after?.name === "once"), 2)
      assertError(yield* issue("bad", "a b"), 400, "invalid_request", "header.idempotency-key")
    }))

  it.effect("are the reason of a rejected API key in the log and the metrics, with the client's address, but not in 401", () =>
    Effect.gen(function*() {
      const { baseUrl, lines } = yield* Management
      const client = yield* AdminClient
      const expiresAt = DateTime.add(yield* DateTime.now, { hours: 1 })
      const issue = client.issue({ name: "a", plan: "free", expiresAt })
      const [disabled, revoked, rotated, expired] = [yield* issue, yield* issue, yield* issue, yield* issue]
      yield* client.update(disabled.id, { enabled: false })
      yield* client.revoke(revoked.id)
      yield* client.rotate(rotated.id)
      const expire = Effect.flatMap(
        DateTime.now,
        (now) => client.update(expired.id, { expiresAt: DateTime.add(now, { milliseconds: 300 }) })
      )
      // On a busy machine, the time may have passed before the service checks it.
      yield* Effect.retry(expire, { times: 9, while: ({ _tag }) => _tag === "InvalidRequest" })
      yield* Effect.sleep("310 millis")
      const unknown = { id: "none", key: Redacted.make(withChecksum("0".repeat(32))) }
      const malformed = { id: "none", key: Redacted.make("psk_x") }
      const admin_token = { id: "none", key: Redacted.make("adm_0123456789abcdef") }
      const cases = Object.entries({ admin_token, disabled, expired, malformed, revoked, rotated, unknown })
      const metrics = Effect.map(send(`${baseUrl}/metrics`, ""), ({ text }) => text)
      const countsIn = (text: string) =>
        cases.map(([reason]) => Number(text.split(`rejections_total{reason="${reason}"} `)[1]?.split("\n")[0]))
      const before = countsIn(yield* metrics)
      for (const [reason, { id, key }] of cases) {
        const { status, text } = yield* listPets(key)
        assert.deepStrictEqual([status, JSON.parse(text).code], [401, "invalid_api_key"])
        assert.notMatch(text, /key_|127\.0/)
        const fields = { keyId: id, error: "invalid_api_key", rejection: reason, address: "127.0.0.1" }
        assert.deepInclude(lines.at(-1), { message: "request", ...fields })
      }
      assert.deepStrictEqual(countsIn(yield* metrics), before.map((count) => count + 1))
      const { status } = yield* listPets(Redacted.make(""))
      assert.strictEqual(status, 401)
      assert.deepInclude(lines.at(-1), { error: "missing_api_key", address: "127.0.0.1" })
    }))

  it.effect("are beside the window that rejected a request in the log, and in the metrics: minute, day or ban", () =>
    Effect.gen(function*() {
      const { baseUrl, lines } = yield* Management
      const client = yield* AdminClient
      const issue = (perMinute: number, perDay: number) =>
        client.issue({ name: "a", plan: "enterprise", limits: { perMinute, perDay } })
      const [ofMinute, ofDay] = [yield* issue(1, 2), yield* issue(1, 1)]
      // Each key is banned at its third rejection.
      for (const [{ key }, name] of [[ofMinute, "minute"], [ofDay, "day"]] as const) {
        const windows: Array<unknown> = []
        for (let i = 0; i < 4; i++) {
          yield* listPets(key)
          windows.push(lines.at(-1)?.["window"])
        }
        assert.deepStrictEqual(windows, [undefined, name, name, "ban"])
        const { text } = yield* send(`${baseUrl}/metrics`, "")
        assert.match(
          text,
          new RegExp(`decisions_total\\{outcome="rejected",plan="enterprise",window="${name}"\\} [1-9]`)
        )
      }
    }))

  it.effect("list banned keys, oldest or newest first, and keep the filter in the link", () =>
    Effect.gen(function*() {
      const { admin } = yield* Management
      const client = yield* AdminClient
      const issue = (name: string) =>
        Effect.andThen(nextMillisecond, client.issue({ name, plan: "enterprise", limits: ownLimits }))
      const issued = yield* Effect.forEach(["listed & 1", "listed & 2", "listed & 3"], issue)
      const query = { plan: "enterprise", state: "banned", pageSize: 1 } as const
      const banned = (order: "oldest" | "newest") =>
        Stream.runCollect(client.all({ ...query, order })).pipe(
          Effect.map((all) => all.flatMap(({ name }) => name.startsWith("listed") ? [name.at(-1)] : []))
        )
      assert.deepStrictEqual(yield* banned("oldest"), [])
      for (const { key } of issued) yield* Effect.replicateEffect(listPets(key), 5)
      yield* client.unban(issued[1]?.id ?? "")
      assert.deepStrictEqual([yield* banned("oldest"), yield* banned("newest")], [["1", "3"], ["3", "1"]])
      assert.lengthOf((yield* client.list({ search: "Listed &", state: "active" })).keys, 3)
      const filter = "order=newest&plan=enterprise&search=listed%20%26"
      const { headers } = yield* admin("GET", `/keys?limit=2&${filter}`)
      for (const parameter of filter.split("&")) assert.include(headers.get("link"), parameter)
    }))

  it.effect("list the keys that expire by a date, which the link to the next page keeps", () =>
    Effect.gen(function*() {
      const { admin } = yield* Management
      const expiresAt = "2100-02-28T00:00:00.000Z"
      for (const name of ["a", "b"]) {
        yield* nextMillisecond
        yield* admin("POST", "/keys", { name, plan: "business", expiresAt })
      }
      yield* admin("POST", "/keys", { name: "later", plan: "business", expiresAt: "2100-02-28T00:00:00.001Z" })
      yield* admin("POST", "/keys", { name: "never", plan: "business" })
      const filter = "expiresBefore=2100-02-28&plan=business"
      const first = yield* admin("GET", `/keys?limit=1&${filter}`)
      const [, next = ""] = /^<\/admin(\/keys\?.*)>; rel="next"$/.exec(first.headers.get("link") ?? "") ?? []
      assert.include(next, "expiresBefore=2100-02-28")
      const second = yield* admin("GET", next)
      assert.containsSubset([first.body, second.body], [[{ name: "a", expiresAt }], [{ name: "b", expiresAt }]])
      assert.isNull(second.headers.get("link"))
    }))

  it.effect("reject an invalid query or change with 400, and name its parameter or fields", () =>
    Effect.gen(function*() {
      const { admin } = yield* Management
      for (const [path, queries] of Object.entries(invalidQueries)) {
        for (const query of queries.split(" ")) {
          assertError(yield* admin("GET", `/${path}?${query}`), 400, "invalid_request", `query.${query.split("=")[0]}`)
        }
      }
      assertError(yield* admin("GET", "/keys?statee=active"), 400, "invalid_request", `; did you mean "state"?`)
      const { id } = yield* Effect.flatMap(AdminClient, (client) => client.issue({ name: "a", plan: "free" }))
      const change = (body: unknown, of = id) => admin("PATCH", `/keys/${of}`, body)
      for (const [body, message] of invalidChanges) assertError(yield* change(body), 400, "invalid_request", message)
      assertError(yield* change({}, "key_none"), 404, "not_found", "key_none")
      assertError(yield* admin("GET", "/keys/key_none/usage"), 404, "not_found", "key_none")
      for (const name of ["\u200Fשלום", "👨‍👩‍👧", "!"]) assert.strictEqual((yield* change({ name })).status, 200)
      yield* admin("DELETE", `/keys/${id}`)
      assertError(yield* change({ name: "b" }), 409, "conflict")
    }))
})
