import { Context, DateTime, Effect, Equal, identity, Layer, Record } from "effect"
import type { AuditAction, AuditEntry, AuditPosition, AuditQuery, AuditValues } from "../api/Audit.ts"
import { serviceOperator, valuesOf } from "../api/Audit.ts"
import { databaseErrors } from "../api/DatabaseErrors.ts"
import type { ServiceUnavailable } from "../api/Errors.ts"
import type { ApiKey } from "../api/KeySchemas.ts"
import { cutPage } from "../api/Paging.ts"
import { BackgroundFailures } from "../database/BackgroundFailures.ts"
import * as Deadline from "../database/Deadline.ts"
import * as WriteBehind from "../database/WriteBehind.ts"

interface Operator extends Pick<AuditEntry, "operator" | "address"> {
  readonly mayChange: boolean
}
/**
 * The operator of a change. Without one, as for the first key, the audit log names the service.
 * `AdminAuthentication.ts` sets it for each admin operation.
 */
export const CurrentOperator = Context.Reference<Operator>("api-keys/CurrentOperator", {
  defaultValue: () => ({ operator: null, address: null, mayChange: false })
})

type StoredEntry = Omit<AuditEntry, "keyName">
type NewEntry = Omit<StoredEntry, "id">
type Values = AuditValues | null

export interface AuditSelection extends Omit<AuditQuery, "cursor"> {
  readonly limit: number
  readonly after?: AuditPosition | undefined
}

export interface AuditStore extends Pick<AuditLog["Service"], "bannedSince"> {
  /**
   * Appends entries. The SQL store skips a ban whose key and time are already stored, because a failed flush of bans
   * may have committed.
   */
  append(entries: ReadonlyArray<NewEntry>): Effect.Effect<void, ServiceUnavailable>
  /**
   * Appends `entry`, unless the key already has one with the same action and `before`. Returns whether it was appended.
   */
  appendOnce(entry: NewEntry): Effect.Effect<boolean, ServiceUnavailable>
  /** Runs `effect` after the commit of the transaction that it is called in, or at once outside of a transaction. */
  afterCommit(effect: Effect.Effect<void>): Effect.Effect<void>
  list(selection: AuditSelection): Effect.Effect<ReadonlyArray<StoredEntry>, ServiceUnavailable>
}

/** The log of the changes to API keys, of bans, and of their lifting by operators. */
export class AuditLog extends Context.Service<AuditLog, {
  /** Appends an entry in the caller's transaction, if there is one. Logs the entry after the commit. */
  append(action: AuditAction, keyId: string, before: Values, after: Values): Effect.Effect<void, ServiceUnavailable>
  /** Appends the entry of an operator's unban, once per ban. `bannedUntil` (epoch ms) identifies the ban. */
  appendUnban(keyId: string, bannedUntil: number): Effect.Effect<void, ServiceUnavailable>
  /** Logs a ban and stores it in the background. `at` and `until` are in epoch milliseconds. */
  recordBan(ban: Readonly<Record<"keyId" | "address", string> & Record<"at" | "until", number>>): Effect.Effect<void>
  /**
   * Returns the ids of the keys with a ban that began after `since`, or with one that this process has not stored yet.
   */
  bannedSince(since: DateTime.Utc): Effect.Effect<ReadonlyArray<string>, ServiceUnavailable>
  /** Returns a page of entries, newest first. */
  list(
    selection: AuditSelection
  ): Effect.Effect<{ readonly entries: ReadonlyArray<StoredEntry>; readonly next?: AuditPosition }, ServiceUnavailable>
}>()("api-keys/AuditLog") {
  /** Keeps the entries in memory. */
  static readonly layerMemory = Layer.effect(AuditLog, Effect.suspend(() => Effect.flatMap(memoryStore, make))).pipe(
    Layer.provide(BackgroundFailures.layerIgnored)
  )
}

const log = ({ action, address, after, before, keyId, operator }: NewEntry) => {
  const fields = { action, keyId, operator: operator ?? serviceOperator, address: address ?? "none", before, after }
  return Effect.annotateLogs(Effect.logInfo(action === "ban" ? "Ban began" : "Admin action"), fields)
}

export const make = Effect.fnUntraced(function*(store: AuditStore) {
  const withinDeadline = yield* Deadline.make(databaseErrors.unavailable)
  const pendingBans = yield* WriteBehind.make({
    table: "audit_log",
    interval: "500 millis",
    write: (bans: ReadonlyMap<string, NewEntry>) => store.append([...bans.values()])
  })
  const makeEntry = Effect.fnUntraced(function*(action: AuditAction, keyId: string, before: Values, after: Values) {
    const { address, operator } = yield* CurrentOperator
    return { at: yield* DateTime.now, action, keyId, operator, address, before, after }
  })
  return AuditLog.of({
    append: Effect.fnUntraced(function*(...change) {
      const entry = yield* makeEntry(...change)
      yield* store.append([entry])
      yield* store.afterCommit(log(entry))
    }),
    appendUnban: Effect.fnUntraced(function*(keyId, bannedUntil) {
      const before = { bannedUntil: new Date(bannedUntil).toISOString() }
      const entry = yield* makeEntry("unban", keyId, before, { bannedUntil: null })
      if (yield* store.appendOnce(entry)) yield* log(entry)
    }),
    recordBan: ({ address, at, keyId, until }) =>
      Effect.suspend(() => {
        const change = { before: { bannedUntil: null }, after: { bannedUntil: new Date(until).toISOString() } }
        const entry = { ...change, at: DateTime.makeUnsafe(at), action: "ban", keyId, operator: null, address } as const
        pendingBans.add(`${keyId} ${at}`, entry)
        return log(entry)
      }),
    bannedSince: (since) =>
      Effect.map(store.bannedSince(since), (stored) => [...stored, ...pendingBans.values().map(({ keyId }) => keyId)])
        .pipe(pendingBans.betweenFlushes, withinDeadline),
    list: Effect.fn("AuditLog.list")(function*({ limit, ...selection }) {
      const { items: entries, last } = cutPage(yield* store.list({ ...selection, limit: limit + 1 }), limit)
      return last === undefined ? { entries } : { entries, next: { at: last.at.epochMilliseconds, id: last.id } }
    })
  })
})

export const differences = (key: ApiKey, other: ApiKey): AuditValues => {
  const others = valuesOf(other)
  return Record.filter(valuesOf(key), (value, name) => value !== others[name])
}

export const memoryStore = Effect.sync((): AuditStore => {
  const entries: Array<StoredEntry> = []
  return {
    afterCommit: identity,
    append: (added) =>
      Effect.sync(() => {
        for (const entry of added) entries.push({ ...entry, id: entries.length + 1 })
      }),
    appendOnce: (added) =>
      Effect.sync(() => {
        const isStored = entries.some(({ action, before, keyId }) =>
          action === added.action && keyId === added.keyId && Equal.equals(before, added.before)
        )
        if (!isStored) entries.push({ ...added, id: entries.length + 1 })
        return !isStored
      }),
    bannedSince: (since) =>
      Effect.sync(() =>
        entries.flatMap(({ action, at, keyId }) => action === "ban" && DateTime.isGreaterThan(at, since) ? [keyId] : [])
      ),
    list: ({ action, after, key, limit, operator, since, until }) =>
      Effect.sync(() =>
        entries
          .filter(({ at: { epochMilliseconds: at }, ...entry }) =>
            (key === undefined || entry.keyId === key) &&
            (operator === undefined || entry.operator === operator) &&
            (action === undefined || entry.action === action) &&
            (since === undefined || at >= since.epochMilliseconds) &&
            (until === undefined || at < until.epochMilliseconds) &&
            (after === undefined || at < after.at || (at === after.at && entry.id < after.id))
          )
          .toSorted((a, b) => b.at.epochMilliseconds - a.at.epochMilliseconds || b.id - a.id)
          .slice(0, limit)
      )
  }
})
