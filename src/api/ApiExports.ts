export { AdminApi, AdminAuth, Session } from "./AdminApi.ts"
export { AuditEntry, AuditPage, AuditQuery } from "./Audit.ts"
export {
  type ApiError,
  ApiKeyBanned,
  Conflict,
  ErrorBody,
  ExpectationFailed,
  Gone,
  HeaderFieldsTooLarge,
  IdempotencyKeyReused,
  InternalError,
  InvalidAdminToken,
  InvalidApiKey,
  InvalidRequest,
  MisdirectedRequest,
  MissingAdminToken,
  MissingApiKey,
  NotFound,
  PayloadTooLarge,
  PreconditionFailed,
  RateLimitExceeded,
  ReadOnlyToken,
  RequestTimeout,
  ServiceUnavailable,
  TooManyAttempts,
  UnsupportedMediaType
} from "./Errors.ts"
export { exactJson, Int64, int64, Int64FromString } from "./Int64.ts"
export { ApiKey, ApiKeyDetails, FoundSecret, IssuedKey, KeyChange, KeysPage } from "./KeySchemas.ts"
export { KeysQuery, KeyState, ListedKey, NewKey, Rotation } from "./KeySchemas.ts"
export { Auth, ConcurrencyLimit, CurrentKey, RateLimit } from "./OperationMiddleware.ts"
export { RequestBody, Sunset, Validation } from "./OperationMiddleware.ts"
export { Cursor } from "./Paging.ts"
export { CreatedPet, ListQuery, NewPet, Pet, Pets, PetsPage, PetStatus } from "./Pets.ts"
export { PetstoreApi } from "./PetstoreApi.ts"
export { Limits, Plan, planLimits } from "./Plans.ts"
export { KeyTotals, TopUsageQuery, UsageHistory, UsageInterval } from "./Usage.ts"
