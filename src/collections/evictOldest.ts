/**
 * If `map` has more than `maxEntries`, evicts the oldest entries until 90 % of `maxEntries` are left. Evicts a batch,
 * because finding the first entry of a `Map` is slow: V8 must skip the slots of deleted entries.
 */
export const evictOldest = (map: Map<unknown, unknown>, maxEntries: number): void => {
  if (map.size <= maxEntries) return
  for (const oldest of map.keys()) {
    if (map.size <= maxEntries * 0.9) return
    map.delete(oldest)
  }
}
