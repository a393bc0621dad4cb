import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Logger, Metric } from "effect"
import { TestClock } from "effect/testing"
import { AuditLog } from "../../src/api-keys/AuditLog.ts"
import { KeyUsage } from "../../src/api-keys/KeyUsage.ts"
import { savedStatesOptions } from "../../src/config/RoomOptions.ts"
import * as SavedStates from "../../src/rate-limit/SavedStates.ts"
import { StateLookups } from "../../src/rate-limit/StateLookups.ts"
import { noDatabase, random, sqlApiKeys, sqlStores } from "../support/Databases.ts"
import { readPage } from "../support/Documents.ts"
import { untilTrue } from "../support/Process.ts"

const services = Layer.mergeAll(sqlStores, sqlApiKeys, SavedStates.layer(savedStatesOptions)).pipe(
  Layer.provide([random, StateLookups.layer, noDatabase])
)

it.effect("Background tasks have the names of docs/monitoring.md, count failures from 0, and log each cause", () =>
  Effect.gen(function*() {
    const log = new Array<string>()
    const logger = Logger.map(Logger.formatLogFmt, (line) => void log.push(line))
    const context = yield* Effect.provide(Layer.build(Layer.fresh(services)), Logger.layer([logger]))
    const failures = Effect.map(
      Metric.snapshot,
      (metrics) =>
        new Map(metrics.flatMap(({ attributes, id, state }) =>
          id === "petstore_background_failures_total"
            ? [[attributes?.["task"] ?? "", Reflect.get(state, "count")]]
            : []
        ))
    )
    const [, table = ""] = readPage("docs/monitoring.md").split("### PetstoreBackgroundFails")
    const named = [...table.split("###")[0]?.matchAll(/^\| `(\w+)(…?)`/gm) ?? []]
    const usage = ["key_usage", "key_usage_minutes", "key_usage_totals"]
    const expiring = ["api_key_secrets", "audit_log", "idempotency_keys", "key_limits", "rate_limits", ...usage]
    const tasks = named.flatMap(([, name = "", isPrefix]) =>
      isPrefix === "" ? [name] : expiring.map((each) => name + each)
    )
    assert.sameMembers([...(yield* failures).keys()], tasks)
    assert.strictEqual((yield* failures).get("write_key_limits"), 0)

    Context.get(context, KeyUsage).count("key_a", "allowed", 0)
    yield* Context.get(context, AuditLog).recordBan({ keyId: "key_a", address: "a", at: 0, until: 1 })
    yield* TestClock.adjust("2 minutes")
    const messages = {
      ...Object.fromEntries(
        expiring.map((each) => [`delete_${each}`, `Expired rows of the table ${each} cannot be deleted`])
      ),
      write_audit_log: "Values for the table audit_log cannot be written",
      write_key_usage: "Values for the table key_usage cannot be written",
      add_up_key_usage: "Usage cannot be added up"
    }
    for (const [task, message] of Object.entries(messages)) {
      yield* untilTrue(Effect.map(failures, (counts) => Number(counts.get(task)) > 0), task)
      const isLogged = (line: string) => ["level=WARN", message, "no database"].every((text) => line.includes(text))
      assert.isTrue(log.some(isLogged), message)
    }
  }).pipe(Effect.provideService(Metric.MetricRegistry, new Map())))
