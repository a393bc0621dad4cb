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
  one("change", fc.record({ id: fc.nat(maxIds), deletes: fc.boolean() })),
  one("commit", fc.record({ of })),
  one("end change", fc.record({ of, timesOut: fc.boolean() }))
]
const slow = [one("read", fc.record({ of }), 4), one("end look-up", fc.record({ of }), 2)]
const operator = one(
  "operator",
  fc.record({ sql: fc.constantFrom("UPDATE", "DELETE", "INSERT"), id: fc.nat(maxIds) }),
  2
)
const step = fc.oneof(pass(0, 1, 1_000, 1_000, 3_000), ...insert, lookUp, ...slow, ...check, ...change, operator)
/** Scenarios in which gaps, or changes during lookups, are frequent. */
const [gapStep, changeStep] = [
  fc.oneof(pass(1_000, 1_000, 1_000, 3_000), ...insert, lookUp, ...check, operator),
  fc.oneof(pass(0, 1, 1_000, 6_500), ...insert, lookUp, ...slow, ...change)
]
type Step = typeof step extends fc.Arbitrary<infer A> ? A : never

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
  readonly end: Deferred.Deferred<void, "timeout">
  readonly fiber: Fiber.Fiber<void, "timeout">
  endedAtMs: number | undefined
  isCommitted: boolean
}

/** Runs steps on a cache and a model of the table, and checks the laws of `CollectionCache.ts` after each. */
const assertLaws = Effect.fnUntraced(function*(steps: ReadonlyArray<Step>) {
  let [nowMs, version, lastId] = [1_000_000, 0, 0]
  const cache = CollectionCache.make<Thing>({ maxItems: 64, lifetimeMs, nowMs: () => nowMs })
  /** Each version of an id that was visible. `undefined` is its absence. */
  const history = new Map<number, Array<{ readonly sinceMs: number; readonly version: number | undefined }>>()
  const ofSequence = new Set<number>()
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
    assert.isTrue(wasRecent(id, found), `item ${id} is older than the lifetime`)
    assert.isAtLeast(found, committed.get(id) ?? 0, `item ${id} is older than a change of this process`)
  }
  const assertSkipped = (id: number) => {
    assert.isTrue(wasRecent(id, undefined), `the gap at ${id} is older than the lifetime`)
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
    const ids = Array.from({ length: maxIds }, (_, index) => index + 1).filter((id) => id > lookup.after)
    lookup.found = ids.flatMap((id) => {
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
      case "pass":
        for (const change of changes) {
          // A change that timed out commits at the last moment or never.
          if (change.endedAtMs !== undefined && change.endedAtMs + lateCommitMs < nowMs + each.ms) {
            nowMs = Math.max(nowMs, change.endedAtMs + lateCommitMs)
            if (change.id % 2 === 0) commit(change)
            change.isCommitted = true
          }
        }
        nowMs += each.ms
        return
      case "insert": {
        if (lastId === maxIds) return
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
        const lookup: Lookup = { after: each.after, size: each.size, cacheItems: cache.beginLookup(), found: undefined }
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
        const statement = cache.change([BigInt(each.id)], Deferred.await(end))
        const fiber = yield* Effect.forkChild(statement, { startImmediately: true })
        changes.push({ ...each, end, fiber, endedAtMs: undefined, isCommitted: false })
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
        if (!each.timesOut) commit(change)
        change.endedAtMs = nowMs
        if (!each.timesOut) change.isCommitted = true
        yield* Deferred.done(change.end, each.timesOut ? Exit.fail("timeout") : Exit.void)
        yield* Fiber.await(change.fiber)
        return
      }
      case "operator": {
        const isVisible = visible(each.id) !== undefined
        const isTaken = writers.some(({ ids }) => ids.includes(each.id))
        if (each.sql === "INSERT" ? isVisible || isTaken || each.id > lastId || each.id === 0 : !isVisible) return
        if (each.sql === "INSERT") ofSequence.delete(each.id)
        write(each.id, each.sql === "DELETE" ? undefined : ++version)
      }
    }
  })
  for (const each of steps) {
    yield* run(each)
    assertReads()
  }
})

const runs = Number(process.env.SEEDS ?? 400)

it("The laws of the cache hold in any order of transactions, lookups, checks, changes and SQL of operators", async () => {
  const steps = fc.oneof(
    ...[step, gapStep, changeStep].map((each) => fc.array<Step>(each, { minLength: 40, maxLength: 200, size: "max" }))
  )
  const report = await fc.check(
    fc.asyncProperty(steps, (each) => Effect.runPromise(Effect.scoped(assertLaws(each)))),
    { numRuns: runs, seed: Number(process.env.SEED ?? 1) }
  )
  assert.isFalse(report.failed, fc.defaultReportMessage(report))
})
