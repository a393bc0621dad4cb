import { Effect, Metric } from "effect"
import type { Duplex } from "node:stream"

const connections = Metric.gauge("database_connections", { description: "Open connections to the database." })
const limit = Metric.gauge("database_max_connections", {
  description: "The maximum of connections to the database, DATABASE_MAX_CONNECTIONS."
})

export const makeCountConnection = Effect.fnUntraced(function*(maxConnections: number) {
  yield* Metric.update(limit, maxConnections)
  const context = yield* Effect.context()
  let open = 0
  const add = (change: 1 | -1): void => {
    open += change
    connections.updateUnsafe(open, context)
  }
  return (connection: Duplex): Duplex => {
    add(1)
    return connection.on("close", () => add(-1))
  }
})
