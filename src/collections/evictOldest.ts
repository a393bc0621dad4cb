/**
 * If `map` has more than `maxEntries`, evicts the oldest tenth by insertion order. Evicting in batches is faster,
 * because finding the oldest entry means skipping the slots of deleted ones.
 */
export const evictOldest = (map: Map<unknown, unknown>, maxEntries: number): void => {
  if (map.size <= maxEntries) return
  for (const oldest of map.keys()) {
    if (map.size <= maxEntries * 0.9) return
    map.delete(oldest)
  }
}
