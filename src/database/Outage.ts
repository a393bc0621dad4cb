/**
 * Tells outages of the database from defects of the service.
 *
 * Laws, for any failure of statements:
 * 1. A failure that `isOutage` recognises, because it ends by itself or with an operator's repair or restart, becomes
 *    one of `OutageErrors`, and is logged once.
 * 2. Any other `SqlError` becomes a defect that holds it unchanged.
 * 3. A failure that is neither a `SqlError` nor a `TimeoutError` passes unchanged.
 */
import { Cause, type Duration, Effect, Predicate } from "effect"
import { SqlError } from "effect/sql"
import { describeChain } from "../observability/ErrorChain.ts"
import * as Deadline from "./Deadline.ts"
import type { OutageErrors } from "./Deadline.ts"

/**
 * SQLSTATE prefixes of a server that starts, stops or ends sessions (57P), lacks resources (53) or is read-only
 * (25006).
 */
const temporaryStates = "57P|53|25006"

export const isTransientAtStart = (error: SqlError.SqlError): boolean => {
  const { reason } = error
  const code = codeOf(reason.cause)
  // PgBouncer reports an unavailable server with 08P01, the code of a protocol violation.
  if (code === "08P01") return !isUnsupportedParameter(error)
  return code === undefined
    ? reason._tag === "ConnectionError" && [error, ...causes(error)].some(isClosed)
    : new RegExp(`^(ECONN|ENOENT|ENOTFOUND|EAI_AGAIN|EHOST|ENET|ETIMEDOUT|${temporaryStates})`).test(code)
}

/** Whether a failure after startup is an outage. So is a rejected login or a missing right: both worked at startup. */
export const isOutage = (failure: unknown): boolean =>
  Cause.isTimeoutError(failure) ||
  (SqlError.isSqlError(failure) &&
    (failure.reason.isRetryable || unreachable.has(failure.reason._tag) || causes(failure).some(isOutageState)))

/** Whether a statement failed for its values: a data exception (SQLSTATE class 22) or a constraint (class 23). */
export const isRejectedValue = (failure: unknown): boolean =>
  SqlError.isSqlError(failure) && causes(failure).some((cause) => /^2[23]/.test(codeOf(cause) ?? ""))

/**
 * Whether a statement failed because its session is read-only. Neither the statement nor its transaction has changed
 * anything.
 */
export const isReadOnly = (failure: unknown): boolean =>
  SqlError.isSqlError(failure) && causes(failure).some((cause) => codeOf(cause) === "25006")

const isDatabaseFault = <E>(failure: E): failure is E & (SqlError.SqlError | Cause.TimeoutError) =>
  SqlError.isSqlError(failure) || Cause.isTimeoutError(failure)

/**
 * Returns a function that turns the failures of an outage into `errors`, and other failures of the database into
 * defects.
 */
export const failWith =
  <U>({ readOnly, unavailable }: OutageErrors<U>) => <A, E, R>(statements: Effect.Effect<A, E, R>) =>
    Effect.catchIf(statements, isDatabaseFault<E>, (fault): Effect.Effect<never, U> =>
      isOutage(fault)
        ? Effect.andThen(
          Effect.logError(`A database statement failed: ${describeChain(fault)}`),
          Effect.fail(isReadOnly(fault) ? readOnly : unavailable)
        )
        : Effect.die(fault))

/** Like `failWith`, with a deadline: fails with `unavailable` after `timeout`, which is `callTimeout` by default. */
export const makeRunner = <U>(errors: OutageErrors<U>, timeout?: Duration.Duration) =>
  Effect.map(
    Deadline.make(errors.unavailable, timeout),
    (withinDeadline) => <A, E, R>(statements: Effect.Effect<A, E, R>) => withinDeadline(failWith(errors)(statements))
  )

export const isUnsupportedParameter = (error: SqlError.SqlError): boolean =>
  causes(error).some((cause) => codeOf(cause) === "08P01" && /startup parameter/.test(String(cause)))

const unreachable = new Set(["ConnectionError", "AuthenticationError", "AuthorizationError"])

/**
 * Whether the SQLSTATE of an error is one of `temporaryStates`, or one that occurs while an operator repairs or
 * restarts a database or a pooler: system error (58), object not in the required state (55000), no such database
 * (3D000), prepared statement missing (26000) or duplicate (42P05).
 */
const isOutageState = (error: unknown): boolean =>
  new RegExp(`^(${temporaryStates}|58|55000|3D000|26000|42P05)`).test(codeOf(error) ?? "")

const isClosed = (error: unknown): boolean =>
  Predicate.hasProperty(error, "message") && /timed out|closed/.test(String(error.message))

const codeOf = (error: unknown): string | undefined =>
  Predicate.hasProperty(error, "code") ? String(error.code) : undefined

const causes = (error: unknown): ReadonlyArray<unknown> =>
  Predicate.hasProperty(error, "cause") ? [error.cause, ...causes(error.cause)] : []
