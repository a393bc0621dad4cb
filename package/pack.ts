/**
 * Builds the client package, packs it into the directory of the first argument, and prints the path of the tarball as
 * its last line.
 *
 * Run it with `npm run pack:client -- DIRECTORY`.
 */
import { execFileSync } from "node:child_process"
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"

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
try {
  cpSync(folder, copy, { recursive: true, filter: (file) => file !== join(folder, "dist") })
  const compiler = join(folder, "../node_modules/typescript/bin/tsc")
  run(process.execPath, [compiler, "-p", folder, "--outDir", join(copy, "dist")])
  mkdirSync(destination, { recursive: true })
  // `npm publish` in the folder builds with the script `prepack`. The copy is built already.
  run("npm", ["pack", "--ignore-scripts", "--pack-destination", destination])
} finally {
  rmSync(copy, { recursive: true })
}
console.log(join(destination, `${name}-${version}.tgz`))
