/**
 * Caches items and gaps (ranges of ids without an item). Outside of transactions, a read of a cached item needs no SQL.
 * Nor does a page, if all items and gaps up to the first item of the next page are cached, and no more than `maxVisits`
 * items. So the last page always needs SQL.
 *
 * Laws, in any order of transactions, lookups and changes, and of their ends:
 * 1. A cached item or gap is never used for longer than `lifetimeMs` after the lookup that read it began.
 * 2. A cached gap never hides an item whose id comes from the table's sequence, once the transaction that inserted the
 *    item has committed. If the sequence is set back, as by a restored backup, this holds again after `2 * lifetimeMs`.
 * 3. A cached item is never older than the last commit of a change of it by this process. So an item is not cached
 *    while a change of it runs. A change that failed may still commit, as may one within a transaction that goes on. So
 *    its item is not cached for `lateCommitMs` more, and such a transaction must end within this time.
 * 4. A lookup that began before the end of a change does not cache the changed items.
 */
import { Duration, Effect, Exit } from "effect"
import { callTimeout } from "../database/Deadline.ts"
import { evictOldest } from "../eviction/evictOldest.ts"
import { type Page, type Range, toPage } from "./Collection.ts"
import * as SettledIds from "./SettledIds.ts"
import type { Item } from "./Table.ts"

/** The maximum number of cached gaps: about 8 MB. */
const maxGaps = 2 ** 16
/**
 * A page is looked up in at most this many cached items. If few of them match the filter, the database's index is
 * faster.
 */
const maxVisits = 1_000
/** The cache assumes that a statement that failed, such as by a timeout, commits within this time or never. */
const lateCommitMs = Duration.toMillis(callTimeout)
/** The results of a lookup that takes longer than this are not cached. Usually, its callers have already timed out. */
const maxLookupMs = 2 * lateCommitMs

interface Options<New> {
  readonly maxItems: number
  readonly isCached?: ((item: New) => boolean) | undefined
  readonly lifetimeMs: number
  readonly nowMs: () => number
}

/**
 * The changes of the item with one id. A lookup caches the item only if the lookup began after `mayCommitUntilMs`, and
 * no change of the item runs.
 */
interface ChangedId {
  /** How many changes run now. */
  running: number
  /**
   * The latest time at which a change that has ended may commit: its end, or `lateCommitMs` later if it failed or its
   * transaction goes on.
   */
  mayCommitUntilMs: number
}

/**
 * A cached item is stored at index `id % maxItems`, and replaces the previous one at this index. Cached ids are
 * numbers, which are faster than bigints, so items with ids over 2^53 - 1 are not cached.
 */
export const make = <New>({ isCached = () => true, lifetimeMs, maxItems, nowMs }: Options<New>) => {
  const items = Array<Item<New> | undefined>(maxItems).fill(undefined)
  const ids = new Float64Array(maxItems).fill(NaN)
  const readTimes = new Float64Array(maxItems)
  /** Maps the id (or `after`) before each gap to the id after it (`next`). The lookup of the gap began at `readAt`. */
  const gaps = new Map<number, { readonly next: number; readonly readAt: number }>()
  /**
   * Changed ids, roughly in the order in which their last change ended. `beginChange` deletes ids from the front, and
   * stops at the first one that it must keep.
   */
  const changedIds = new Map<number, ChangedId>()
  const settledIds = SettledIds.make(lifetimeMs, nowMs)

  const find = (id: number, since: number): Item<New> | undefined => {
    const slot = id % maxItems
    return ids[slot] === id && (readTimes[slot] ?? 0) >= since ? items[slot] : undefined
  }
  const findAfterGap = (id: number, since: number): Item<New> | undefined => {
    const gap = gaps.get(id)
    return gap !== undefined && gap.readAt >= since ? find(gap.next, since) : undefined
  }
  const isChangedSince = (id: number, readAt: number): boolean => {
    const changed = changedIds.get(id)
    return changed !== undefined && (changed.running > 0 || changed.mayCommitUntilMs >= readAt)
  }

  const beginChange = (changed: ReadonlyArray<bigint>): void => {
    const oldestLookup = nowMs() - maxLookupMs
    for (const [id, { mayCommitUntilMs, running }] of changedIds) {
      if (running > 0 || mayCommitUntilMs >= oldestLookup) break
      changedIds.delete(id)
    }
    for (const id of changed.map(Number)) {
      const { mayCommitUntilMs, running } = changedIds.get(id) ?? { mayCommitUntilMs: -Infinity, running: 0 }
      changedIds.set(id, { running: running + 1, mayCommitUntilMs })
      if (ids[id % maxItems] === id) ids[id % maxItems] = NaN
    }
  }
  const endChange = (changed: ReadonlyArray<bigint>, mayCommitUntilMs: number): void => {
    for (const id of changed.map(Number)) {
      const before = changedIds.get(id)
      changedIds.delete(id)
      changedIds.set(id, {
        running: (before?.running ?? 1) - 1,
        mayCommitUntilMs: Math.max(mayCommitUntilMs, before?.mayCommitUntilMs ?? mayCommitUntilMs)
      })
    }
  }

  return {
    settledIds,
    /**
     * Runs a statement that changes or deletes the items with these ids. All changes by this process must be made with
     * this function. If `isCommitted` is false, the statement belongs to a transaction that may commit later. Then
     * these items are not cached for `lateCommitMs`, as after a failure.
     */
    change: <A, E, R>(changed: ReadonlyArray<bigint>, statement: Effect.Effect<A, E, R>, isCommitted = true) =>
      Effect.acquireUseRelease(
        Effect.sync(() => beginChange(changed)),
        () => statement,
        (_, exit) =>
          Effect.sync(() => endChange(changed, nowMs() + (isCommitted && Exit.isSuccess(exit) ? 0 : lateCommitMs)))
      ),
    /**
     * Call before a statement that reads items, then pass the items to the returned function, which caches them. For an
     * unfiltered page, also pass the page's `after`. The function then also handles the gaps before and between the
     * items: it caches those below a settled id, and notes the others for a check (`SettledIds.ts`).
     */
    beginLookup(): (found: Iterable<Item<New>>, after?: bigint) => void {
      const readAt = nowMs()
      const settledId = settledIds.current()
      return (found, after) => {
        if (lifetimeMs === 0 || nowMs() - readAt > maxLookupMs) return
        let previous = after === undefined ? NaN : Math.max(Number(after), 0)
        for (const item of found) {
          const id = Number(item.id)
          if (!Number.isSafeInteger(id)) return
          if (id > previous + 1) {
            if (id <= settledId) gaps.set(previous, { next: id, readAt })
            else settledIds.noteGap(id, readAt)
          }
          if (after !== undefined) previous = id
          if (!isCached(item) || isChangedSince(id, readAt)) continue
          items[id % maxItems] = item
          ids[id % maxItems] = id
          readTimes[id % maxItems] = readAt
        }
        evictOldest(gaps, maxGaps)
      }
    },
    get: (id: bigint): Item<New> | undefined => find(Number(id), nowMs() - lifetimeMs),
    /**
     * Returns the page if every item after `after` is cached, up to the first match beyond the page, which shows that
     * there is a next page. This includes items that do not match, and the gaps between ids, but at most `maxVisits`
     * items. Otherwise returns `undefined`.
     */
    page({ after = 0n, limit }: Range, matches: (item: New) => boolean): Page<Item<New>> | undefined {
      const since = nowMs() - lifetimeMs
      const found: Array<Item<New>> = []
      let id = Math.max(Number(after), 0)
      for (let visits = 0; visits < maxVisits; visits++) {
        const item = find(id + 1, since) ?? findAfterGap(id, since)
        if (item === undefined) return undefined
        id = Number(item.id)
        if (matches(item) && found.push(item) > limit) return toPage(found, limit)
      }
      return undefined
    }
  }
}
