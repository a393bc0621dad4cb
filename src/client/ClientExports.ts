export { AdminClient, type AdminOptions, type AnyAdminError, type FoundKey } from "./AdminClient.ts"
export { type ResponseMetadata, withMetadata } from "./ClientCalls.ts"
export {
  InvalidInput,
  isRetryable,
  PetstoreClientError,
  PetstoreClientErrorReason,
  UndeclaredError,
  UnexpectedResponse,
  Unreachable
} from "./ClientError.ts"
export { type AllQuery, type AnyError, type CreateOptions, type Options, PetstoreClient } from "./PetstoreClient.ts"
export { RateLimitState } from "./Pacing.ts"
export type { RetryOptions } from "./Retries.ts"
export type { CallOptions, ClientOptions, Optional, Secret } from "./Transport.ts"
