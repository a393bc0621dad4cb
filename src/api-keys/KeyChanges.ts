/** The rules for changes of a key, for every store. */
import { type DateTime, Result } from "effect"
import { Conflict, InvalidRequest } from "../api/Errors.ts"
import { type ApiKey, type KeyChange, limitsOf } from "../api/Keys.ts"

/** Returns whether the instant `at` has passed at `nowMs`. `null` never passes. */
export const hasEnded = (at: DateTime.Utc | null, nowMs: number): boolean =>
  at !== null && at.epochMilliseconds <= nowMs

/** Returns whether a secret of a key works at `nowMs`. `endsAt` is the end of the secret. */
export const isWorking = ({ expiresAt, revokedAt }: ApiKey, endsAt: DateTime.Utc | null, nowMs: number): boolean =>
  revokedAt === null && !hasEnded(expiresAt, nowMs) && !hasEnded(endsAt, nowMs)

export const invalidExpiry = new InvalidRequest({
  message: "Invalid request: body.expiresAt: expected an instant in the future."
})

export const invalidLimits = (issue: string) =>
  new InvalidRequest({ message: `Invalid request: body.limits: ${issue}.` })

export const revokedConflict = (id: string) => new Conflict({ message: `Key ${id} is revoked.` })

/** Returns the key after a change at `nowMs`. Fails if the key is revoked, or if the change does not fit the key. */
export const applyChange = (
  key: ApiKey,
  { expiresAt = key.expiresAt, limits, name = key.name, plan = key.plan }: KeyChange,
  nowMs: number
): Result.Result<ApiKey, Conflict | InvalidRequest> => {
  if (key.revokedAt !== null) return Result.fail(revokedConflict(key.id))
  // The unchanged expiry of an expired key is valid.
  if (expiresAt !== key.expiresAt && hasEnded(expiresAt, nowMs)) return Result.fail(invalidExpiry)
  const isUnchanged = limits === undefined && plan === key.plan
  return (isUnchanged ? Result.succeed(key.limits) : limitsOf({ plan, ...limits && { limits } })).pipe(
    Result.mapError(invalidLimits),
    Result.map((newLimits) => ({ ...key, name, plan, limits: newLimits, expiresAt }))
  )
}

/** Returns the key after its revocation at `at`. Fails if it is revoked already. */
export const applyRevocation = (key: ApiKey, at: DateTime.Utc): Result.Result<ApiKey, Conflict> =>
  key.revokedAt === null
    ? Result.succeed({ ...key, revokedAt: at })
    : Result.fail(new Conflict({ message: `Key ${key.id} is already revoked.` }))
