/**
 * If `map` has more than `maxEntries`, evicts the tenth that was inserted first. Evicts a batch, because the search for
 * the first entry of a `Map` is slow: it skips the slots of deleted ones.
 */
export const evictOldest = (map: Map<unknown, unknown>, maxEntries: number): void => {
  if (map.size <= maxEntries) return
  for (const oldest of map.keys()) {
    if (map.size <= maxEntries * 0.9) return
    map.delete(oldest)
  }
}
