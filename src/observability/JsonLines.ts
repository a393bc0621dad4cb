/** Names the logger of JSON lines, so that the access log can write to it directly. */
import { Context, type Logger } from "effect"

/**
 * The logger that writes JSON lines, and its writer. While it is the only logger, the access log writes straight to
 * the writer. A line through the general logger costs a third of a request.
 */
export const JsonLines = Context.Reference<
  { readonly logger: Logger.Logger<unknown, void>; readonly write: (line: string) => void } | undefined
>("petstore/observability/JsonLines", { defaultValue: () => undefined })
