/**
 * Runs the program at the path in the first argument as two processes that share its port, as Node's documentation of
 * `node:cluster` recommends.
 */
import cluster from "node:cluster"

const [, , exec = ""] = process.argv
cluster.setupPrimary({ exec, args: [] })
const workers = [cluster.fork(), cluster.fork()]
// The primary process exits when both workers have.
process.once("SIGTERM", () => workers.forEach((worker) => worker.process.kill("SIGTERM")))
cluster.on("exit", (_, code) => {
  if (code !== 0) process.exit(1)
})
