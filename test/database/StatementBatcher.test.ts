import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Exit, Logger } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient, type SqlConnection, SqlError } from "effect/sql"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { databaseErrors } from "../../src/api/DatabaseErrors.ts"
import * as StatementBatcher from "../../src/database/StatementBatcher.ts"
import { noDatabase } from "../support/Databases.ts"

const sqlError = (code: string) =>
  new SqlError.SqlError({ reason: new SqlError.UnknownError({ cause: Object.assign(new Error(code), { code }) }) })
const outage = new SqlError.SqlError({ reason: new SqlError.ConnectionError({ cause: new Error("closed") }) })

const scenario = fc.record({
  isWrite: fc.boolean(),
  size: fc.constantFrom(4, 250),
  // The item has this SQLSTATE, or is accepted. A call can be within a transaction.
  calls: fc.array(
    fc.record({
      code: fc.constantFrom("", "", "", "22008", "22P02", "23514", "23505", "23503"),
      isInTransaction: fc.boolean()
    }),
    { minLength: 1, maxLength: 40 }
  ),
  // The number of the first statement that meets an outage, and how many do.
  outage: fc.option(fc.tuple(fc.nat(12), fc.integer({ min: 1, max: 4 })))
})

type Scenario = typeof scenario extends fc.Arbitrary<infer A> ? A : never

/** Runs a scenario, and checks the laws of `StatementBatcher.ts`. */
const assertLaws = Effect.fnUntraced(function*({ calls, isWrite, outage: lost, size }: Scenario) {
  const connection = { execute: () => Effect.succeed([]) } as unknown as SqlConnection.Connection
  const options = {
    acquirer: Effect.succeed(connection),
    compiler: PgClient.makeCompiler(),
    spanAttributes: [],
    driver: "fake",
    prepareTransactionControls: true
  }
  const sql = yield* Effect.provide(SqlClient.make(options), Reactivity.layer)
  const statements: Array<{ readonly items: ReadonlyArray<typeof calls[number]>; readonly isLost: boolean }> = []
  const run = (items: ReadonlyArray<typeof calls[number]>, isShared: boolean) =>
    Effect.withFiber((fiber) => {
      const isLost = lost !== null && statements.length >= lost[0] && statements.length < lost[0] + lost[1]
      statements.push({ items, isLost })
      assert.strictEqual(StatementBatcher.isInTransaction(sql, fiber), !isShared)
      for (const item of items) assert.strictEqual(item.isInTransaction, !isShared)
      if (!isShared) assert.lengthOf(items, 1)
      if (isLost) return Effect.fail(outage)
      const code = items.map((item) => item.code).find((each) => each !== "")
      return code === undefined
        ? Effect.succeed(new Map(items.map((item) => [item, item])))
        : Effect.fail(sqlError(code))
    })
  const make = isWrite ? StatementBatcher.write : StatementBatcher.read
  const batched = yield* Effect.provideService(
    make({ name: "laws", size, errors: databaseErrors, run }),
    SqlClient.SqlClient,
    sql
  )
  const call = (item: typeof calls[number]) =>
    Effect.exit(item.isInTransaction ? sql.withTransaction(batched(item)) : batched(item))
  const exits = yield* Effect.forEach(calls, call, { concurrency: "unbounded" })
  for (const [index, exit] of exits.entries()) {
    const item = calls[index] ?? assert.fail()
    const isLost = statements.some((each) => each.isLost && each.items.includes(item))
    if (Exit.isSuccess(exit)) assert.deepStrictEqual([exit.value === item, item.code], [true, ""])
    else if (isLost) assert.match(String(exit), /Fail\(ServiceUnavailable/)
    else assert.match(String(exit), new RegExp(`Die\\(.*${item.code}`, "s"))
    if (!isLost && item.code === "") assert.isTrue(Exit.isSuccess(exit), "fails for the value of another call")
  }
  // Halving takes at most two statements for each item. Without rejected values, a batch takes one.
  const shared = calls.filter((item) => !item.isInTransaction)
  const sent = statements.filter(({ items }) => items.some((item) => !item.isInTransaction)).length
  assert.isAtMost(sent, 2 * shared.length)
  if (shared.every(({ code }) => code === "")) assert.isAtMost(sent, Math.ceil(shared.length / size) + (lost?.[1] ?? 0))
}, Effect.scoped)

it("A batcher of statements keeps its laws for any rejected values, outages and transactions", () =>
  fc.assert(
    fc.asyncProperty(scenario, async (each) => {
      const laws = Effect.provide(assertLaws(each), [TestClock.layer(), Logger.layer([])])
      const exit = await Effect.runPromiseExit(laws)
      assert.isTrue(Exit.isSuccess(exit), String(exit))
    }),
    { numRuns: 200 }
  ))

it.effect("An outage of a statement is one line at level Error, for all calls that get 503 because of it", () => {
  const lines: Array<string> = []
  const logger = Logger.make(({ logLevel, message }) => void lines.push(`${logLevel} ${String(message)}`))
  return Effect.gen(function*() {
    const run = () => Effect.fail(outage)
    const call = yield* StatementBatcher.read({ name: "fake", size: 9, errors: databaseErrors, run })
    const failures = yield* Effect.forEach([1, 2, 3], (item) => Effect.flip(call(item)), { concurrency: 3 })
    assert.deepStrictEqual(failures, [1, 2, 3].map(() => databaseErrors.unavailable))
    assert.match(lines.join("\n"), /^Error A database statement failed: .*closed$/)
  }).pipe(Effect.provide([noDatabase, Logger.layer([logger])]))
})
