/**
 * Evicts the oldest entries of `map`, in insertion order, when it holds more than `maxEntries`.
 *
 * It evicts a tenth of the entries at once. To find the first entry, a `Map` steps over all entries that were deleted
 * before it, so one eviction per insert would be slow.
 */
export const evictOldest = (map: Map<unknown, unknown>, maxEntries: number): void => {
  if (map.size <= maxEntries) return
  for (const oldest of map.keys()) {
    if (map.size <= maxEntries * 0.9) return
    map.delete(oldest)
  }
}
