import { Effect } from "effect"
import { execFile } from "node:child_process"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { temporaryDirectory } from "./Temporary.ts"

export type Environment = Readonly<Record<string, string>>

/** Runs a program with `input`, and returns its output. Its environment is that of the tests, and `env`. */
export const run = (cwd: string, program: string, args: ReadonlyArray<string>, env: Environment = {}, input = "") =>
  Effect.promise((signal) =>
    new Promise<string>((resolve, reject) => {
      const options = { cwd, env: { ...process.env, ...env }, maxBuffer: 1e8, signal }
      const child = execFile(program, [...args], options, (error, stdout, stderr) =>
        error === null ? resolve(stdout) : reject(new Error(`${error.message}\n${stdout}\n${stderr}`)))
      // A program can end before it reads all of its input.
      child.stdin?.on("error", () => {}).end(input)
    })
  )

/** Makes a project of ES modules and installs its dependencies. `args` are further arguments of `npm install`. */
export const makeProject = Effect.fnUntraced(function*(dependencies: Environment, args: ReadonlyArray<string> = []) {
  const project = yield* temporaryDirectory
  writeFileSync(join(project, "package.json"), JSON.stringify({ type: "module", private: true, dependencies }))
  yield* run(project, "npm", ["install", "--no-audit", "--no-fund", "--prefer-offline", ...args])
  return project
})

const isArm = process.arch === "arm64"

/** The npm packages of runtimes, which install without scripts, and the program in each. */
const programs = {
  // The registry has no 22.19 for arm64.
  node: { name: `node-linux-${process.arch}`, version: isArm ? "22.20.0" : "22.19.0", path: "bin/node" },
  bun: { name: `@oven/bun-linux-${isArm ? "aarch64" : "x64"}`, version: "1.4.5", path: "bin/bun" },
  deno: { name: `@deno/linux-${process.arch}-glibc`, version: "2.9.5", path: "deno" },
  workerd: { name: `@cloudflare/workerd-linux-${isArm ? "arm64" : "64"}`, version: "1.20260730.1", path: "bin/workerd" }
}
type Program = keyof typeof programs

/** Installs programs from the npm registry. Returns their paths. */
export const install = Effect.fnUntraced(function*(...wanted: ReadonlyArray<Program>) {
  const dependencies = wanted.map((each) => [programs[each].name, programs[each].version] as const)
  const project = yield* makeProject(Object.fromEntries(dependencies), ["--ignore-scripts"])
  return (each: Program) => join(project, "node_modules", programs[each].name, programs[each].path)
})
