/**
 * If `map` has more than `maxEntries`, deletes its oldest entries until 90 % of `maxEntries` are left. Deleting one at
 * a time would be slow, because V8's `Map` skips deleted entries to find the first.
 */
export const evictOldest = (map: Map<unknown, unknown>, maxEntries: number): void => {
  if (map.size <= maxEntries) return
  for (const oldest of map.keys()) {
    if (map.size <= maxEntries * 0.9) return
    map.delete(oldest)
  }
}
