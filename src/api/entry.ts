/** Exports the contract of the API, from which other packages can derive clients and documents. */
export { AdminApi, AdminAuth } from "./AdminApi.ts"
export { AuditEntry, AuditPage } from "./Audit.ts"
export { Auth } from "./Auth.ts"
export * as Errors from "./Errors.ts"
export {
  ApiKeyBanned,
  ErrorBody,
  Gone,
  IdempotencyKeyReused,
  InternalError,
  InvalidApiKey,
  InvalidRequest,
  MissingApiKey,
  NotFound,
  PayloadTooLarge,
  PreconditionFailed,
  RateLimitExceeded,
  RequestTimeout,
  ServiceUnavailable
} from "./Errors.ts"
export { exactJson, Int64, int64 } from "./Int64.ts"
export { ApiKey, ApiKeyDetails, IssuedKey, KeyChange, KeysPage, ListedKey, NewKey } from "./Keys.ts"
export { openApiDocument } from "./OpenApiDocument.ts"
export { ListQuery, NewPet, Pet, Pets, PetsCursor, PetsPage, PetStatus } from "./Pets.ts"
export { PetstoreApi } from "./PetstoreApi.ts"
export { Limits, Plan, planLimits } from "./Plans.ts"
export { UsageHistory, type UsageInterval } from "./Usage.ts"
