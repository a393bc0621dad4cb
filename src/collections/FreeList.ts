/** A collection of short-lived items without order, instead of a `Set` that changes with each request. */

/**
 * Holds items in numbered slots and reuses the free slots.
 *
 * V8 keeps each table that a `Map` or a `Set` outgrew, for iterators that still read it, and links it to the next one.
 * When such a collection changes on every request, its first table to reach the old generation keeps all later tables
 * alive. Their entries then survive every minor garbage collection too. Measured with a `Map`: 700 bytes per insert,
 * and 3.3 ms per minor collection instead of 1.3 ms.
 */
export class FreeList<A extends object> implements Iterable<A> {
  readonly #slots: Array<A | undefined> = []
  readonly #freeSlots: Array<number> = []

  /** Puts `item` in a slot and returns the slot's index. The slot belongs to the item until `remove`. */
  add(item: A): number {
    const slot = this.#freeSlots.pop() ?? this.#slots.length
    this.#slots[slot] = item
    return slot
  }

  /** Removes the item in `slot`. The caller must call this only once per `add`. */
  remove(slot: number): void {
    this.#slots[slot] = undefined
    this.#freeSlots.push(slot)
    // An empty list gives back the memory of its peak.
    if (this.#freeSlots.length === this.#slots.length) this.#freeSlots.length = this.#slots.length = 0
  }

  *[Symbol.iterator](): Iterator<A> {
    for (const item of this.#slots) if (item !== undefined) yield item
  }
}
