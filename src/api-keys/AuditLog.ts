import { Context, DateTime, Effect, Record } from "effect"
import {
  type AuditAction,
  type AuditEntry,
  type AuditPosition,
  type AuditQuery,
  type AuditValues,
  valuesOf
} from "../api/Audit.ts"
import type { ServiceUnavailable } from "../api/Errors.ts"
import type { ApiKey } from "../api/Keys.ts"
import { cutPage } from "../api/Paging.ts"
import * as WriteBehind from "../database/WriteBehind.ts"

interface Operator extends Pick<AuditEntry, "operator" | "address"> {
  readonly mayChange: boolean
}
export const CurrentOperator = Context.Reference<Operator>("petstore/api-keys/CurrentOperator", {
  defaultValue: () => ({ operator: null, address: null, mayChange: false })
})

type StoredEntry = Omit<AuditEntry, "keyName">
type NewEntry = Omit<StoredEntry, "id">

export interface AuditSelection extends Omit<AuditQuery, "cursor"> {
  readonly limit: number
  readonly after?: AuditPosition | undefined
}

export interface ListedEntries {
  readonly entries: ReadonlyArray<StoredEntry>
  readonly next?: AuditPosition
}

export interface AuditStore extends Pick<AuditLog, "bannedSince"> {
  append(entries: ReadonlyArray<NewEntry>): Effect.Effect<void, ServiceUnavailable>
  list(selection: AuditSelection): Effect.Effect<ReadonlyArray<StoredEntry>, ServiceUnavailable>
}

/** Appends an entry. Must run in the transaction of the change, so that either both commit or neither does. */
type Append = (
  keyId: string,
  before: AuditValues | null,
  after: AuditValues | null
) => Effect.Effect<void, ServiceUnavailable>

export interface AuditLog {
  /** Runs an action, which appends at most one entry to the audit log. If it succeeds, also logs that entry. */
  record<A, E>(action: AuditAction, run: (append: Append) => Effect.Effect<A, E>): Effect.Effect<A, E>
  /** Logs a ban and stores it in the background. `at` and `until` are in epoch milliseconds. */
  recordBan(ban: Readonly<Record<"keyId" | "address", string> & Record<"at" | "until", number>>): Effect.Effect<void>
  bannedSince(since: DateTime.Utc): Effect.Effect<ReadonlyArray<string>, ServiceUnavailable>
  list(selection: AuditSelection): Effect.Effect<ListedEntries, ServiceUnavailable>
}

const log = ({ action, address, after, before, keyId, operator }: NewEntry) => {
  const fields = { action, keyId, operator: operator ?? "none", address: address ?? "none", before, after }
  return Effect.annotateLogs(Effect.logInfo(action === "ban" ? "Ban began" : "Admin action"), fields)
}

export const make = Effect.fnUntraced(function*(store: AuditStore) {
  const pendingBans = yield* WriteBehind.make({
    table: "audit_log",
    interval: "500 millis",
    write: (bans: ReadonlyMap<string, NewEntry>) => store.append([...bans.values()]),
    warning: "Bans cannot be recorded in the audit log"
  })
  const auditLog: AuditLog = {
    record: Effect.fnUntraced(function*(action, run) {
      const [at, { address, operator }] = [yield* DateTime.now, yield* CurrentOperator]
      let appended: NewEntry | undefined
      const result = yield* run((keyId, before, after) =>
        Effect.suspend(() => {
          appended = { at, action, keyId, operator, address, before, after }
          return store.append([appended])
        })
      )
      if (appended !== undefined) yield* log(appended)
      return result
    }),
    recordBan: ({ address, at, keyId, until }) =>
      Effect.suspend(() => {
        const change = { before: { bannedUntil: null }, after: { bannedUntil: new Date(until).toISOString() } }
        const entry = { ...change, at: DateTime.makeUnsafe(at), action: "ban", keyId, operator: null, address } as const
        pendingBans.set(`${keyId} ${at}`, entry)
        return log(entry)
      }),
    bannedSince: (since) =>
      Effect.map(store.bannedSince(since), (stored) => [...stored, ...pendingBans.values().map(({ keyId }) => keyId)])
        .pipe(pendingBans.betweenFlushes),
    list: Effect.fn("AuditLog.list")(function*({ limit, ...selection }) {
      const { items: entries, last } = cutPage(yield* store.list({ ...selection, limit: limit + 1 }), limit)
      return last === undefined ? { entries } : { entries, next: { at: last.at.epochMilliseconds, id: last.id } }
    })
  }
  return auditLog
})

export const differences = (key: ApiKey, other: ApiKey): AuditValues => {
  const others = valuesOf(other)
  return Record.filter(valuesOf(key), (value, name) => value !== others[name])
}

export const memoryStore = Effect.sync((): AuditStore => {
  const entries: Array<StoredEntry> = []
  return {
    append: (added) =>
      Effect.sync(() => {
        for (const entry of added) entries.push({ ...entry, id: entries.length + 1 })
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
