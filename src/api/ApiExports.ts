export { AdminApi, AdminAuth } from "./AdminApi.ts"
export { AuditEntry, AuditPage, AuditQuery } from "./Audit.ts"
export * as Errors from "./Errors.ts"
export * from "./Errors.ts"
export { exactJson, Int64, int64 } from "./Int64.ts"
export {
  ApiKey,
  ApiKeyDetails,
  FoundSecret,
  IssuedKey,
  KeyChange,
  type KeyFilter,
  KeysPage,
  KeysQuery,
  KeyState,
  ListedKey,
  NewKey
} from "./KeySchemas.ts"
export {
  Auth,
  ConcurrencyLimit,
  CurrentKey,
  RateLimit,
  RequestBody,
  Sunset,
  Validation
} from "./OperationMiddleware.ts"
export * from "./Pets.ts"
export { PetstoreApi } from "./PetstoreApi.ts"
export { Limits, Plan, planLimits } from "./Plans.ts"
export { UsageHistory, type UsageInterval } from "./Usage.ts"
