import { Context, DateTime, Duration, Effect, Equal, Layer, Redacted, Result } from "effect"
import { SecureRandom } from "effect/crypto"
import { type AuditValues, valuesOf } from "../api/Audit.ts"
import { type IfMatch, isMatch } from "../api/EntityTags.ts"
import { Conflict, InvalidRequest, NotFound, PreconditionFailed, type ServiceUnavailable } from "../api/Errors.ts"
import type { ApiKey, FormerSecret, FoundSecret, IssuedKey, KeyChange, KeyPosition, NewKey } from "../api/KeySchemas.ts"
import { keyStateOf, limitsOf } from "../api/KeySchemas.ts"
import { cutPage } from "../api/Paging.ts"
import type { Limits, Plan } from "../api/Plans.ts"
import { base62, randomLength, withChecksum } from "../api/Secrets.ts"
import { BackgroundFailures } from "../database/BackgroundFailures.ts"
import type { Change, KeySelection, StoreSelection } from "./ApiKeyStore.ts"
import { ApiKeyStore, positionOf } from "./ApiKeyStore.ts"
import { AuditLog, differences } from "./AuditLog.ts"
import { KeyUsage } from "./KeyUsage.ts"
import { KeyVerifier } from "./KeyVerifier.ts"

export interface ListedKeys {
  readonly keys: ReadonlyArray<ApiKey & { readonly secret?: FoundSecret }>
  readonly next?: KeyPosition
}

type ChangeError = NotFound | Conflict | PreconditionFailed | ServiceUnavailable

/** Issues, changes and finds API keys. */
export class ApiKeys extends Context.Service<ApiKeys, {
  /**
   * Fails with `Conflict` if `idempotencyKey` was already used. The secret of the earlier call cannot be returned
   * again, because PostgreSQL has only its hash.
   */
  issue(key: NewKey, idempotencyKey?: string): Effect.Effect<IssuedKey, InvalidRequest | Conflict | ServiceUnavailable>
  /**
   * The state `banned` selects active keys that may be banned: those with a recent ban or, with `secretHash`, the key
   * of that secret. `AdminHandlers.ts` checks each key.
   */
  list(selection: KeySelection): Effect.Effect<ListedKeys, ServiceUnavailable>
  /** Fails with `NotFound` for an unknown id. */
  find(id: string): Effect.Effect<ApiKey, NotFound | ServiceUnavailable>
  /** Returns the keys with these ids. The map has no entry for an unknown id. */
  findAll(ids: ReadonlyArray<string>): Effect.Effect<ReadonlyMap<string, ApiKey>, ServiceUnavailable>
  /** Returns the former secrets whose grace period has not ended. */
  formerSecrets(id: string): Effect.Effect<ReadonlyArray<FormerSecret>, ServiceUnavailable>
  /** Changes a key. The change takes effect at once in this process, and within one second in other processes. */
  update(id: string, change: KeyChange, ifMatch?: IfMatch): Effect.Effect<ApiKey, ChangeError | InvalidRequest>
  /** Replaces the secret. Former secrets work for at most `grace` from now. Takes effect as quickly as `update`. */
  rotate(id: string, grace: Duration.Duration, ifMatch?: IfMatch): Effect.Effect<IssuedKey, ChangeError>
  /** Ends the grace periods of all former secrets. */
  endFormerSecrets(id: string, ifMatch?: IfMatch): Effect.Effect<void, ChangeError>
  /** Revokes the key for good. */
  revoke(id: string, ifMatch?: IfMatch): Effect.Effect<void, ChangeError>
}>()("api-keys/ApiKeys") {
  /** Keeps the keys in the `ApiKeyStore` of the context. */
  static readonly layer = Layer.effect(ApiKeys, Effect.suspend(() => make))
  /** Keeps the keys in memory. */
  static readonly layerMemory = ApiKeys.layer.pipe(
    Layer.provideMerge(Layer.mergeAll(KeyVerifier.layer, AuditLog.layerMemory, KeyUsage.layerMemory)),
    Layer.provide([ApiKeyStore.layerMemory, BackgroundFailures.layerIgnored])
  )
}

export const randomText = Effect.fnUntraced(function*(length: number) {
  const random = yield* SecureRandom.SecureRandom
  const indices = yield* Effect.replicateEffect(random.intBetween(0, base62.length - 1), length)
  return indices.map((index) => base62.charAt(index)).join("")
})

const newSecret = Effect.map(randomText(randomLength), withChecksum)

const hintOf = (secret: string): string => secret.slice(-4)

const maxBan = Duration.hours(1)
const maxWorkingSecrets = 5

const make = Effect.gen(function*() {
  const store = yield* ApiKeyStore
  const verifier = yield* KeyVerifier
  const audit = yield* AuditLog
  const random = yield* SecureRandom.SecureRandom

  const list = Effect.fnUntraced(function*({ limit, secretHash, state, ...filter }: KeySelection) {
    const now = yield* DateTime.now
    const stateFilter: Pick<StoreSelection, "ids" | "state"> = state === "banned"
      ? { state: "active", ids: yield* audit.bannedSince(DateTime.subtractDuration(now, maxBan)) }
      : { state }
    const selection: StoreSelection = { ...filter, ...stateFilter, limit: limit + 1 }
    if (secretHash !== undefined) {
      const secret = yield* store.findSecret(secretHash, now)
      if (secret === undefined) return { keys: [] }
      const { endsAt, keyId } = secret
      const found = yield* store.list({ ...selection, ids: [keyId] }, now)
      const works = (key: ApiKey) => keyStateOf(key, now) === "active" && !hasEnded(endsAt, now)
      return { keys: found.map((key) => ({ ...key, secret: { works: works(key), endsAt } })) }
    }
    const isFiltered = [selection.plan, selection.state, selection.expiresBefore].some((each) => each !== undefined)
    const until = isFiltered && selection.ids === undefined ? yield* store.scanEnd(selection) : undefined
    const { items: keys, last } = cutPage(yield* store.list({ ...selection, until }, now), limit)
    const next = last === undefined ? until : positionOf(last, selection.search)
    return next === undefined ? { keys } : { keys, next }
  })

  const changeKey = Effect.fnUntraced(function*<E>(
    action: "update" | "revoke" | "rotate" | "end-former",
    id: string,
    ifMatch: IfMatch | undefined,
    change: (key: ApiKey, now: DateTime.Utc, workingSecrets: number) => Result.Result<Omit<Change, "auditEntry">, E>,
    details?: AuditValues
  ) {
    const now = yield* DateTime.now
    const changed = yield* store.change(id, now, (before, workingSecrets) =>
      Result.gen(function*() {
        if (!isMatch(ifMatch, before.version)) return yield* versionMismatch(before)
        if (before.revokedAt !== null) return yield* conflict(`Key ${id} is revoked.`)
        const result = yield* change(before, now, workingSecrets)
        if (result.formerSecretsEndAt === undefined && Equal.equals(result.key, before)) return undefined
        const key = { ...result.key, version: before.version + 1 }
        const after = { ...differences(key, before), ...details }
        return { ...result, key, auditEntry: audit.append(action, id, differences(before, key), after) }
      })).pipe(
        // Evict the key from the cache even after a failure, because the transaction may have committed.
        Effect.ensuring(verifier.evict(id))
      )
    return yield* orNotFound(id, changed)
  })

  const findAll = Effect.fnUntraced(function*(ids: ReadonlyArray<string>) {
    const found = yield* store.list({ ids, limit: ids.length }, yield* DateTime.now)
    return new Map(found.map((key) => [key.id, key]))
  })

  return ApiKeys.of({
    list,
    find: (id) => Effect.flatMap(findAll([id]), (keys) => orNotFound(id, keys.get(id))),
    findAll,
    formerSecrets: (id) => Effect.flatMap(DateTime.now, (now) => store.formerSecrets(id, now)),

    issue: Effect.fn("ApiKeys.issue")(function*({ expiresAt = null, limits, name, plan }, idempotencyKey) {
      const createdAt = yield* DateTime.now
      if (hasEnded(expiresAt, createdAt)) return yield* Effect.fromResult(invalidExpiry)
      const keyLimits = yield* Effect.fromResult(checkedLimits(plan, limits))
      const secret = yield* newSecret
      const key: ApiKey = {
        id: `key_${yield* randomText(16)}`,
        version: 1,
        name,
        hint: hintOf(secret),
        plan,
        limits: keyLimits,
        enabled: true,
        createdAt,
        expiresAt,
        revokedAt: null,
        lastUsedAt: null
      }
      const entry = audit.append("issue", key.id, null, valuesOf(key))
      const existing = yield* store.insert(key, store.hash(secret), entry, idempotencyKey)
      if (existing !== undefined) {
        return yield* new Conflict({
          message: `Key ${existing} was issued with this Idempotency-Key. ` +
            "Its secret is not shown again: rotate the key for a new one."
        })
      }
      return { ...key, key: Redacted.make(secret) }
    }, Effect.provideService(SecureRandom.SecureRandom, random)),

    update: Effect.fn("ApiKeys.update")((id, change, ifMatch) =>
      changeKey("update", id, ifMatch, (key, now): Result.Result<Pick<Change, "key">, InvalidRequest> => {
        const { enabled = key.enabled, expiresAt = key.expiresAt, limits, name = key.name, plan = key.plan } = change
        // Allow an unchanged past expiry, so that other fields of an expired key can be changed.
        if (!Equal.equals(expiresAt, key.expiresAt) && hasEnded(expiresAt, now)) return invalidExpiry
        const isUnchanged = limits === undefined && plan === key.plan
        return Result.map(
          isUnchanged ? Result.succeed(key.limits) : checkedLimits(plan, limits),
          (newLimits) => ({ key: { ...key, name, plan, limits: newLimits, enabled, expiresAt } })
        )
      })
    ),

    rotate: Effect.fn("ApiKeys.rotate")(function*(id, grace, ifMatch) {
      const secret = yield* newSecret
      const rotated = yield* changeKey("rotate", id, ifMatch, (key, now, workingSecrets) => {
        const formerSecretsEndAt = Duration.isZero(grace) ? null : DateTime.addDuration(now, grace)
        if (hasEnded(key.expiresAt, now)) return conflict(`Key ${id} has expired.`)
        if (formerSecretsEndAt !== null && workingSecrets >= maxWorkingSecrets) {
          return conflict(
            `Key ${id} already has ${maxWorkingSecrets} secrets that work. Wait until a grace period ends, or rotate ` +
              "the key without a grace period, which revokes them all at once."
          )
        }
        return Result.succeed({
          key: { ...key, hint: hintOf(secret) },
          secretHash: store.hash(secret),
          formerSecretsEndAt
        })
      }, { gracePeriodSeconds: Math.round(Duration.toSeconds(grace)) })
      return { ...rotated, key: Redacted.make(secret) }
    }, Effect.provideService(SecureRandom.SecureRandom, random)),

    endFormerSecrets: Effect.fn("ApiKeys.endFormerSecrets")((id, ifMatch) =>
      Effect.asVoid(
        changeKey("end-former", id, ifMatch, (key, _, workingSecrets) =>
          Result.succeed({ key, ...workingSecrets > 1 && { formerSecretsEndAt: null } }))
      )
    ),

    revoke: Effect.fn("ApiKeys.revoke")((id, ifMatch) =>
      Effect.asVoid(
        changeKey("revoke", id, ifMatch, (key, revokedAt) => Result.succeed({ key: { ...key, revokedAt } }))
      )
    )
  })
})

const hasEnded = (at: DateTime.Utc | null, now: DateTime.Utc): boolean =>
  at !== null && DateTime.isLessThanOrEqualTo(at, now)

const checkedLimits = (plan: Plan, limits: Limits | undefined): Result.Result<Limits, InvalidRequest> =>
  Result.mapError(
    limitsOf({ plan, ...limits && { limits } }),
    (issue) => new InvalidRequest({ message: `Invalid request: body.limits: ${issue}.` })
  )

const invalidExpiry = Result.fail(
  new InvalidRequest({ message: "Invalid request: body.expiresAt: expected a time in the future." })
)

const conflict = (message: string) => Result.fail(new Conflict({ message }))

const versionMismatch = ({ id, version }: ApiKey) =>
  Result.fail(
    new PreconditionFailed({
      message: `Key ${id} has version ${version}, which does not match If-Match. Read the key again, then retry.`
    })
  )

const orNotFound = (id: string, key: ApiKey | undefined): Effect.Effect<ApiKey, NotFound> =>
  key === undefined ? Effect.fail(new NotFound({ message: `There is no key ${id}.` })) : Effect.succeed(key)
