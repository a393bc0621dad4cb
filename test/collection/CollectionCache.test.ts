import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber } from "effect"
import * as fc from "fast-check"
import * as CollectionCache from "../../src/collection/CollectionCache.ts"

interface Thing {
  readonly version: number
}

const lifetimeMs = 8_000
/** A change that timed out commits within this time. */
const lateCommitMs = 2_999
const maxIds = 20

const one = <const Name extends string, Fields extends object>(
  name: Name,
  fields: fc.Arbitrary<Fields>,
  weight = 3
) => ({
  weight,
  arbitrary: fields.map((values) => ({ do: name, ...values }))
})
const of = fc.nat(2)
const isWhole = fc.constantFrom(true, true, true, false)
const pass = (...ms: ReadonlyArray<number>) => one("pass", fc.record({ ms: fc.constantFrom(...ms) }), 5)
const insert = [one("insert", fc.record({ of })), one("end insert", fc.record({ of, commits: fc.boolean() }), 2)]
const check = [
  one("check writers", fc.record({ reads: fc.boolean(), isWhole }), 5),
  one("end check", fc.record({ of }))
]
const lookUp = one(
  "look up",
  fc.record({ after: fc.oneof(fc.constant(0), fc.nat(maxIds)), size: fc.nat(maxIds), isWhole }),
  6
)
const change = [
  one(
    "change",
    fc.record({ id: fc.nat(maxIds), deletes: fc.boolean(), isInTransaction: fc.constantFrom(false, false, true) })
  ),
  one("commit", fc.record({ of })),
  one("end change", fc.record({ of, timesOut: fc.boolean() }))
]
const slow = [one("read", fc.record({ of }), 4), one("end look-up", fc.record({ of }), 2)]
const operator = one(
  "operator",
  fc.record({ sql: fc.constantFrom("UPDATE", "DELETE", "INSERT"), id: fc.nat(maxIds) }),
  2
)
const restore = one("restore", fc.record({ to: fc.nat(maxIds) }), 1)
const step = fc.oneof(
  pass(0, 1, 1_000, 1_000, 3_000),
  ...insert,
  lookUp,
  ...slow,
  ...check,
  ...change,
  operator,
  restore
)
/** Scenarios in which gaps, changes during lookups, or slow lookups are frequent. */
const [gapStep, changeStep, slowStep] = [
  fc.oneof(pass(1_000, 1_000, 1_000, 3_000), ...insert, lookUp, ...check, operator, restore),
  fc.oneof(pass(0, 1, 1_000, 6_500), ...insert, lookUp, ...slow, ...change),
  fc.oneof(pass(1, 1_000, 3_000, 3_000), ...insert, lookUp, ...slow, ...check, operator)
]
type Step = typeof step extends fc.Arbitrary<infer A> ? A : never
/** With few ids, more steps meet at one id. */
interface Scenario {
  readonly ids: number
  readonly steps: ReadonlyArray<Step>
}

interface Writer {
  readonly ids: Array<number>
}
interface Lookup {
  readonly after: number
  readonly size: number
  readonly cacheItems: (found: Iterable<Thing & { readonly id: bigint }>, after?: bigint) => void
  found: ReadonlyArray<Thing & { readonly id: bigint }> | undefined
}
interface Change {
  readonly id: number
  readonly deletes: boolean
  readonly isInTransaction: boolean
  readonly end: Deferred.Deferred<void, "timeout">
  readonly fiber: Fiber.Fiber<void, "timeout">
  endedAtMs: number | undefined
  isCommitted: boolean
}

/** Runs steps on a cache and a model of the table, and checks the laws of `CollectionCache.ts` after each. */
const assertLaws = Effect.fnUntraced(function*({ ids, steps }: Scenario) {
  let [nowMs, version, lastId] = [1_000_000, 0, 0]
  const cache = CollectionCache.make<Thing>({ maxItems: 64, lifetimeMs, nowMs: () => nowMs })
  /** Each version of an id that was visible. `undefined` is its absence. */
  const history = new Map<number, Array<{ readonly sinceMs: number; readonly version: number | undefined }>>()
  const ofSequence = new Set<number>()
  let restoredAtMs = -Infinity
  /** The version of the last commit of a change of each id. */
  const committed = new Map<number, number>()
  const writers: Array<Writer> = []
  const lookups: Array<Lookup> = []
  const changes: Array<Change> = []
  const checks: Array<
    { readonly end: (writers: ReadonlySet<unknown>) => void; readonly seen: Set<unknown> | undefined }
  > = []

  const visible = (id: number) => history.get(id)?.at(-1)?.version
  const write = (id: number, value: number | undefined) =>
    void history.set(id, [...history.get(id) ?? [], { sinceMs: nowMs, version: value }])
  /** Whether an id had this version within the lifetime of the cache. */
  const wasRecent = (id: number, value: number | undefined): boolean => {
    const all = history.get(id) ?? []
    const untilMs = (index: number) => all[index + 1]?.sinceMs ?? Infinity
    return all.some((each, index) => each.version === value && untilMs(index) >= nowMs - lifetimeMs) ||
      (value === undefined && (all[0]?.sinceMs ?? Infinity) >= nowMs - lifetimeMs)
  }
  const commit = (change: Change) => {
    if (change.isCommitted || visible(change.id) === undefined) return
    change.isCommitted = true
    committed.set(change.id, ++version)
    write(change.id, change.deletes ? undefined : version)
  }

  const assertItem = (id: number, found: number) => {
    // Calls `assert` only for a failure: an assertion for each item would take half of this file's time.
    if (!wasRecent(id, found)) assert.fail(`item ${id} is older than the lifetime`)
    if (found < (committed.get(id) ?? 0)) assert.fail(`item ${id} is older than a change of this process`)
  }
  const assertSkipped = (id: number) => {
    assert.isTrue(wasRecent(id, undefined), `the gap at ${id} is older than the lifetime`)
    if (nowMs <= restoredAtMs + 2 * lifetimeMs) return
    assert.isFalse(ofSequence.has(id) && visible(id) !== undefined, `a page skips the committed item ${id}`)
  }
  const assertReads = () => {
    for (let id = 1; id <= lastId; id++) {
      const found = cache.get(BigInt(id))
      if (found !== undefined) assertItem(id, found.version)
    }
    for (let after = 0; after < lastId; after++) {
      for (const limit of [1, 3]) {
        const page = cache.page({ after: BigInt(after), limit }, () => true)
        let previous = after
        for (const { id, version: found } of page?.items ?? []) {
          for (let skipped = previous + 1; skipped < Number(id); skipped++) assertSkipped(skipped)
          assertItem(previous = Number(id), found)
        }
      }
    }
  }

  const read = (lookup: Lookup) => {
    const after = Array.from({ length: ids }, (_, index) => index + 1).filter((id) => id > lookup.after)
    lookup.found = after.flatMap((id) => {
      const found = visible(id)
      return found === undefined ? [] : [{ id: BigInt(id), version: found }]
    }).slice(0, lookup.size + 1)
  }
  const endLookup = (lookup: Lookup | undefined) => {
    if (lookup?.found !== undefined) lookup.cacheItems(lookup.found, BigInt(lookup.after))
  }

  const take = <A>(list: Array<A>, index: number): A | undefined => list.splice(index % (list.length || 1), 1)[0]
  const run = Effect.fnUntraced(function*(each: Step) {
    switch (each.do) {
      case "pass": {
        const endMs = nowMs + each.ms
        for (const change of changes) {
          // A change that timed out commits at the last moment or never.
          if (change.endedAtMs !== undefined && change.endedAtMs + lateCommitMs < endMs) {
            nowMs = Math.max(nowMs, change.endedAtMs + lateCommitMs)
            if (change.id % 2 === 0) commit(change)
            change.isCommitted = true
          }
        }
        nowMs = endMs
        return
      }
      case "insert": {
        if (lastId === ids) return
        const writer = writers[each.of] ?? { ids: [] }
        if (!writers.includes(writer)) writers.push(writer)
        writer.ids.push(++lastId)
        return
      }
      case "end insert":
        for (const id of take(writers, each.of)?.ids ?? []) {
          if (each.commits) {
            ofSequence.add(id)
            write(id, ++version)
          }
        }
        return
      case "look up": {
        const lookup: Lookup = {
          after: each.after % ids,
          size: each.size,
          cacheItems: cache.beginLookup(),
          found: undefined
        }
        if (each.isWhole) {
          read(lookup)
          endLookup(lookup)
        } else lookups.push(lookup)
        return
      }
      case "read": {
        const lookup = lookups[each.of]
        if (lookup?.found === undefined && lookup !== undefined) read(lookup)
        return
      }
      case "end look-up":
        endLookup(take(lookups, each.of))
        return
      case "check writers": {
        const end = cache.settledIds.beginCheck()
        if (each.isWhole) end?.(new Set(writers))
        else if (end !== undefined) checks.push({ end, seen: each.reads ? new Set(writers) : undefined })
        return
      }
      case "end check": {
        const check = take(checks, each.of)
        check?.end(check.seen ?? new Set(writers))
        return
      }
      case "change": {
        const end = yield* Deferred.make<void, "timeout">()
        const id = each.id % (ids + 1)
        const statement = cache.change([BigInt(id)], Deferred.await(end), !each.isInTransaction)
        const fiber = yield* Effect.forkChild(statement, { startImmediately: true })
        changes.push({ ...each, id, end, fiber, endedAtMs: undefined, isCommitted: false })
        return
      }
      case "commit": {
        const change = changes[each.of]
        if (change !== undefined) commit(change)
        return
      }
      case "end change": {
        const change = changes.filter(({ endedAtMs }) => endedAtMs === undefined)[each.of]
        if (change === undefined) return
        change.endedAtMs = nowMs
        if (!each.timesOut && !change.isInTransaction) {
          commit(change)
          change.isCommitted = true
        }
        yield* Deferred.done(change.end, each.timesOut ? Exit.fail("timeout") : Exit.void)
        yield* Fiber.await(change.fiber)
        return
      }
      case "operator": {
        const id = each.id % (ids + 1)
        const isVisible = visible(id) !== undefined
        const isTaken = writers.some((writer) => writer.ids.includes(id))
        if (each.sql === "INSERT" ? isVisible || isTaken || id > lastId || id === 0 : !isVisible) return
        if (each.sql === "INSERT") ofSequence.delete(id)
        write(id, each.sql === "DELETE" ? undefined : ++version)
        return
      }
      case "restore": {
        // The backup has the first items as they are. Its sequence gives the ids of the lost ones again.
        restoredAtMs = nowMs
        writers.splice(0)
        for (const change of changes) change.isCommitted = true
        for (const id of Array.from({ length: lastId }, (_, index) => index + 1).filter((lost) => lost > each.to)) {
          if (visible(id) !== undefined) write(id, undefined)
          ofSequence.delete(id)
          committed.delete(id)
        }
        lastId = Math.min(lastId, each.to)
      }
    }
  })
  for (const each of steps) {
    yield* run(each)
    assertReads()
  }
})

const wait1: Step = { do: "pass", ms: 1_000 }
const wait3: Step = { do: "pass", ms: 3_000 }
const readFirst: Step = { do: "read", of: 0 }
const endFirst: Step = { do: "end look-up", of: 0 }
/** Inserts the next ids, each by a writer. */
const insertBy = (...writers: ReadonlyArray<number>) => writers.map((of): Step => ({ do: "insert", of }))
const endInsert = (of: number, commits = true): Step => ({ do: "end insert", of, commits })
const lookUpAfter = (after: number, isWhole = true): Step => ({ do: "look up", after, size: maxIds, isWhole })
const checkWriters: Step = { do: "check writers", reads: true, isWhole: true }
const operatorOn = (id: number, sql: "UPDATE" | "DELETE" | "INSERT"): Step => ({ do: "operator", id, sql })
const restoreTo = (to: number): Step => ({ do: "restore", to })
const changeOf = (id: number, isInTransaction = false): ReadonlyArray<Step> => [
  { do: "change", id, deletes: false, isInTransaction },
  { do: "end change", of: 0, timesOut: false }
]
const threeItems = [...insertBy(0, 0, 0), endInsert(0)]
const readGap = [lookUpAfter(0), checkWriters, wait1]
/** Settles an id after the gap 2: the second check finds that the writers of the first have ended. */
const settleAfterGap = [
  ...insertBy(0, 1, 0, 0),
  endInsert(1, false),
  endInsert(0),
  ...readGap,
  ...readGap,
  lookUpAfter(0)
]
const slowLookUp = [lookUpAfter(0, false), readFirst]
const wait6 = [wait3, wait3]

/** The shortest orders that break a law without the line of the source that keeps it. */
const hardOrders: ReadonlyArray<ReadonlyArray<Step>> = [
  // A lookup reads, then an operator changes the item, then the lookup ends just in time.
  [...threeItems, ...slowLookUp, operatorOn(2, "UPDATE"), ...wait6, endFirst, wait3],
  // The lookup ends so late that it caches nothing, because its changed ids may be forgotten.
  [...threeItems, ...slowLookUp, ...changeOf(2), ...wait6, wait1, ...changeOf(3), endFirst],
  // An id changes during a lookup, and another one changes before the lookup ends.
  [...threeItems, ...slowLookUp, ...changeOf(2), wait1, ...changeOf(3), endFirst],
  // A change whose statement has succeeded in a transaction, which commits later.
  [...threeItems, ...changeOf(2, true), lookUpAfter(0), wait3],
  // A gap is filled by an operator, and used for its lifetime alone.
  [...settleAfterGap, lookUpAfter(0), operatorOn(2, "INSERT"), ...wait6, lookUpAfter(2), wait3],
  // A gap, read by a slow lookup, is filled by an operator while the lookup runs.
  settleAfterGap.concat(
    slowLookUp,
    operatorOn(2, "INSERT"),
    wait3,
    wait1,
    wait1,
    endFirst,
    wait3,
    lookUpAfter(2),
    wait1
  ),
  // A lookup reads a gap before an id above it is settled, and ends after that.
  [...insertBy(0, 1, 0, 0), endInsert(0), lookUpAfter(0), checkWriters, wait1, lookUpAfter(0)]
    .concat(slowLookUp, endInsert(0), checkWriters, endFirst),
  // An id that was settled before a restore is no proof for the ids that the sequence gives again.
  [...settleAfterGap, restoreTo(1), ...wait6, ...wait6, ...wait6, ...insertBy(0, 1, 1)]
    .concat(endInsert(1), lookUpAfter(0), endInsert(0)),
  // Nor is an id that a slow lookup read before a restore, for longer than twice the lifetime after the restore.
  [...insertBy(0, 1, 0, 1, 1), endInsert(0, false), endInsert(0), ...slowLookUp, restoreTo(2), ...wait6, endFirst]
    .concat(checkWriters, wait1, lookUpAfter(0), checkWriters, wait6, insertBy(0, 1, 1), endInsert(1))
    .concat(lookUpAfter(0), endInsert(0), wait3, wait1)
]

const runs = Number(process.env.SEEDS ?? 400)

it("The laws of the cache hold in any order of transactions, lookups, checks, changes, restores and SQL of operators", async () => {
  const steps = fc.oneof(
    ...[step, gapStep, changeStep, slowStep].map((each) =>
      fc.array<Step>(each, { minLength: 40, maxLength: 200, size: "max" })
    )
  )
  const scenario = fc.record({ ids: fc.constantFrom(4, maxIds), steps })
  const report = await fc.check(
    fc.asyncProperty(scenario, (each) => Effect.runPromise(Effect.scoped(assertLaws(each)))),
    {
      numRuns: runs,
      seed: Number(process.env.SEED ?? 1),
      examples: hardOrders.map((steps): [Scenario] => [{ ids: 5, steps }])
    }
  )
  assert.isFalse(report.failed, fc.defaultReportMessage(report))
})

it("A page of a filter is not cut short when the cache has too many items before its next match", () => {
  const maxItems = 4_096
  const cache = CollectionCache.make<Thing>({ maxItems, isCached: () => true, lifetimeMs, nowMs: () => 0 })
  const items = Array.from({ length: 2_000 }, (_, index) => ({ id: BigInt(index + 1), version: index === 0 ? 1 : 0 }))
  cache.beginLookup()(items)
  assert.lengthOf(cache.page({ limit: 1 }, ({ version }) => version === 0)?.items ?? [], 1)
  assert.isUndefined(cache.page({ limit: 2 }, ({ version }) => version === 1))
})
