/**
 * Builds the client package, packs it into the directory of the first argument, and prints the path of the tarball as
 * its last line.
 *
 * Run it with `npm run pack:client -- DIRECTORY`.
 */
import { execFileSync } from "node:child_process"
import { cpSync, globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join, relative, resolve } from "node:path"

const [directory = "."] = process.argv.slice(2)
const folder = import.meta.dirname
// npm runs a script in the folder of package.json. INIT_CWD is the directory in which the user called npm.
const destination = resolve(process.env.INIT_CWD ?? process.cwd(), directory)

const { name, version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"))

// The build is made in a copy, so that several runs at once do not disturb each other.
const copy = mkdtempSync(join(tmpdir(), "petstore-client-"))
// The output of npm and of the compiler goes to standard error.
const run = (program: string, args: ReadonlyArray<string>) =>
  execFileSync(program, args, { cwd: copy, stdio: ["ignore", process.stderr, process.stderr] })

/** Copies the compiled sources, so that editors go to them from a declaration, and the specification that they cite. */
const copySources = () => {
  const source = join(folder, "../src")
  const copied = (file: string) => join(copy, "src", relative(source, file))
  for (const path of globSync("dist/**/*.d.ts.map", { cwd: copy })) {
    const map = join(copy, path)
    const { sources: [file = ""], ...others } = JSON.parse(readFileSync(map, "utf8"))
    const original = resolve(dirname(map), file)
    cpSync(original, copied(original))
    writeFileSync(map, JSON.stringify({ ...others, sources: [relative(dirname(map), copied(original))] }))
  }
  cpSync(join(source, "api/SPEC.md"), join(copy, "src/api/SPEC.md"))
}

try {
  cpSync(folder, copy, { recursive: true, filter: (file) => file !== join(folder, "dist") })
  const compiler = join(folder, "../node_modules/typescript/bin/tsc")
  run(process.execPath, [compiler, "-p", folder, "--outDir", join(copy, "dist")])
  copySources()
  mkdirSync(destination, { recursive: true })
  run("npm", ["pack", "--ignore-scripts", "--pack-destination", destination])
} finally {
  rmSync(copy, { recursive: true })
}
console.log(join(destination, `${name}-${version}.tgz`))
