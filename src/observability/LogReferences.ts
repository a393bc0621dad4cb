import { Context, type Logger } from "effect"

/**
 * The JSON logger, and the function `write` that outputs its lines, or `undefined` if the log is not JSON. If the JSON
 * logger is the only one, the access log calls `write` directly: through Effect's logger, its line would take a third
 * of the CPU of a list, measured without sockets (docs/performance.md). Otherwise, it uses Effect's logger.
 */
export const JsonLines = Context.Reference<
  { readonly logger: Logger.Logger<unknown, void>; readonly write: (line: string) => void } | undefined
>("petstore/observability/JsonLines", { defaultValue: () => undefined })

/** Whether to write the access log: the setting `ACCESS_LOG`. `Logging.layer` sets it together with the logger. */
export const AccessLogEnabled = Context.Reference<boolean>("petstore/observability/AccessLogEnabled", {
  defaultValue: () => true
})
