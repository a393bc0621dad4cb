import { Effect } from "effect"
import * as ConcurrentIndex from "../ConcurrentIndex.ts"

/** Its statements cannot run in a transaction. */
export const transactional = false

export default Effect.gen(function*() {
  // Serves a page of keys, oldest first, without a sort. The order of ids is that of their bytes, whatever the locale.
  // The index has no column that the use of a key changes, so that `last_used_at` is still updated in place.
  yield* ConcurrentIndex.create("api_keys_created", `api_keys (created_at, id COLLATE "C")`)
  // Finds the expired secrets of rotated keys. The current secret of a key has no end, and no entry here.
  yield* ConcurrentIndex.create(
    "api_key_secrets_expires_at",
    "api_key_secrets (expires_at) WHERE expires_at IS NOT NULL"
  )
})
