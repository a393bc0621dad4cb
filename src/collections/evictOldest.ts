/**
 * Forgets the entries of `map` that were set first when it has more than `kept`: a tenth of them at once, since finding
 * the first of a map means stepping over all that was deleted before it.
 */
export const evictOldest = (map: Map<unknown, unknown>, kept: number): void => {
  if (map.size <= kept) return
  for (const oldest of map.keys()) {
    if (map.size <= kept * 0.9) return
    map.delete(oldest)
  }
}
