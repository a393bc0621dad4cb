export { RateLimitState } from "../api/RateLimitState.ts"
export {
  AdminClient,
  type AdminOptions,
  type AnyAdminError,
  type ChangeKeyError,
  type FoundKey
} from "./AdminClient.ts"
export type { ChangeOptions, GetKeyError, IssueKeyError, IssueOptions, RotateOptions } from "./AdminClient.ts"
export { type ResponseMetadata, type StreamQuery, type WithMetadata, withMetadata } from "./ClientCalls.ts"
export { isRetryable, PetstoreClientError, PetstoreClientErrorReason } from "./ClientError.ts"
export { InvalidInput, SecretUnavailable, UndeclaredError, UnexpectedResponse, Unreachable } from "./ClientError.ts"
export { type AllQuery, type AnyError, type CreateError, type CreateOptions, type GetError } from "./PetstoreClient.ts"
export { type Options, PetstoreClient } from "./PetstoreClient.ts"
export type { RetryOptions } from "./Retries.ts"
export type { CallOptions, ClientOptions, Optional, OptionsConfig, Secret } from "./Transport.ts"
