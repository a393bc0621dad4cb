/** Entry point of the package export `petstore-client/client`. */
export { AdminClient, type AdminOptions, type AnyAdminError, type FoundKey } from "./AdminClient.ts"
export {
  type CallOptions,
  type ClientOptions,
  type Optional,
  type ResponseMetadata,
  type Secret,
  withMetadata
} from "./ClientCalls.ts"
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
