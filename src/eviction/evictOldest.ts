/**
 * If `map` has more than `maxEntries` entries, deletes the oldest until 90 % of `maxEntries` are left. Deletes in
 * batches, because V8's `Map` steps over all deleted entries each time it looks for the first entry.
 */
export const evictOldest = (map: Map<unknown, unknown>, maxEntries: number): void => {
  if (map.size <= maxEntries) return
  for (const oldest of map.keys().take(map.size - Math.floor(maxEntries * 0.9))) map.delete(oldest)
}
