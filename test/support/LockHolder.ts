/** A process that acquires, checks and releases the lock of a directory, as its parent asks. */
import { Effect, Exit, Scope } from "effect"
import * as DirectoryLock from "../../src/database/DirectoryLock.ts"

let scope = Scope.makeUnsafe()
let isHeld = (): boolean => false

const perform = async (action: string): Promise<string> => {
  if (action === "check") return String(isHeld())
  if (action === "release") {
    isHeld = () => false
    await Effect.runPromise(Scope.close(scope, Exit.void))
    scope = Scope.makeUnsafe()
    return "released"
  }
  const acquired = Effect.provideService(DirectoryLock.acquire(process.argv[2] ?? "", "DATA_DIR"), Scope.Scope, scope)
  const result = await Effect.runPromise(Effect.match(acquired, {
    onFailure: ({ _tag }) => _tag,
    onSuccess: (check) => {
      isHeld = check
      return "acquired"
    }
  }))
  return result
}

process.on("message", (action) => void perform(String(action)).then((result) => process.send?.(result)))
process.send?.("ready")
