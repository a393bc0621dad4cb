/**
 * If `map` has more than `maxEntries`, evicts the oldest tenth, in insertion order. One eviction per insert would be
 * slow, because iteration steps over the slots of deleted entries.
 */
export const evictOldest = (map: Map<unknown, unknown>, maxEntries: number): void => {
  if (map.size <= maxEntries) return
  for (const oldest of map.keys()) {
    if (map.size <= maxEntries * 0.9) return
    map.delete(oldest)
  }
}
