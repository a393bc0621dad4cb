/**
 * If `map` has more than `maxEntries` entries, deletes those that were inserted first, until 90 % of `maxEntries`
 * (rounded down) are left. Deletes many at once, because a deletion for each insert would be slow: to find its first
 * entry, V8's `Map` steps over the entries that were deleted before.
 */
export const evictOldest = (map: Map<unknown, unknown>, maxEntries: number): void => {
  if (map.size <= maxEntries) return
  for (const oldest of map.keys().take(map.size - Math.floor(maxEntries * 0.9))) map.delete(oldest)
}
