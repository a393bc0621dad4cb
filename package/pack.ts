/**
 * Builds the client package, packs it into the directory of the first argument, and prints the path of the tarball as
 * its last line.
 *
 * Run it with `npm run pack:client -- DIRECTORY`.
 */
import { execFileSync } from "node:child_process"
import { mkdirSync, readFileSync } from "node:fs"
import { join, resolve } from "node:path"

const [directory = "."] = process.argv.slice(2)
const folder = import.meta.dirname
// npm runs a script in the folder of package.json. INIT_CWD is the directory in which the user called npm.
const destination = resolve(process.env.INIT_CWD ?? process.cwd(), directory)

const { name, version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"))

mkdirSync(destination, { recursive: true })
// The build is the `prepack` script of the package, so that `npm publish` in the folder builds it too.
execFileSync("npm", ["pack", "--pack-destination", destination], {
  cwd: folder,
  // The output of npm and of the compiler goes to standard error.
  stdio: ["ignore", process.stderr, process.stderr]
})
console.log(join(destination, `${name}-${version}.tgz`))
