import { Effect } from "effect"

/**
 * Runs an effect once for all fibers that ask for the same key while it runs. A key is in the map exactly while its
 * effect runs.
 */
export class SingleFlight<K, E> {
  readonly #running = new Map<K, Effect.Effect<void, E>>()

  /**
   * Joins the run of `key`, or starts one with `effect`. It is uninterruptible: the interruption of one waiting fiber
   * must not affect the others.
   */
  run(key: K, effect: Effect.Effect<void, E>): Effect.Effect<void, E> {
    return Effect.uninterruptible(Effect.suspend(() => {
      const running = this.#running.get(key)
      if (running !== undefined) return running
      const once = Effect.cached(Effect.ensuring(effect, Effect.sync(() => this.#running.delete(key))))
      return Effect.flatMap(once, (shared) => {
        this.#running.set(key, shared)
        return shared
      })
    }))
  }
}
