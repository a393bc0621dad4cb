import { assert, it } from "@effect/vitest"
import { runScript } from "../simulation/Servers.ts"

it("A probe writes even if there is nothing to store, so a replica rejects it", () => {
  const written = (verb: "probe" | "peek") => runScript(1_000, undefined, "key:a", { verb }).value
  assert.deepStrictEqual([written("probe"), written("peek")], ["0 0 0 0 0 0 0 0", undefined])
})
