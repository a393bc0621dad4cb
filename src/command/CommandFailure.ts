import { Cause, Config, Console, Exit, Predicate, Schema } from "effect"
import { CliError, CliOutput } from "effect/cli"
import * as Brand from "../api/Brand.ts"
import { describeIssue } from "../api/DescribeIssue.ts"
import { isApiError } from "../api/Errors.ts"
import { PetstoreClientError } from "../client/ClientError.ts"
import { describeError } from "../config/SettingForms.ts"
import { adminTokenFile } from "../config/Settings.ts"
import { printable } from "./KeyOutput.ts"

const isPrinted = (failure: unknown): failure is CliError.ShowHelp =>
  CliError.isCliError(failure) && failure._tag === "ShowHelp"

const limitFlags = "--per-minute and --per-day"

/** Prints each command-line error on one line, without the help, which would push the errors off the screen. */
export const layerErrorPresenter = CliOutput.layerPresenter({
  present: (event) => {
    if (event._tag !== "InvalidInvocation") return CliOutput.defaultPresenter.present(event)
    const lines = event.errors.map(({ message }) => printable(message.replace("\n\n", ".").replaceAll(/\s+/g, " ")))
    return Console.error([...lines, `See \`${event.commandPath.join(" ")} --help\`.`].join("\n"))
  }
})

/** Whether `failure` has a cause with a code of OpenSSL for a certificate whose authority Node does not know. */
const isUntrusted = (failure: unknown): boolean => {
  if (!Predicate.hasProperty(failure, "cause")) return false
  const { cause } = failure
  const code = Predicate.hasProperty(cause, "code") ? String(cause.code) : ""
  return /^(?:DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_\w+)$/.test(code) || isUntrusted(cause)
}

export const exitCodeOf = (exit: Exit.Exit<unknown, unknown>): number => {
  if (Exit.isSuccess(exit)) return 0
  if (Cause.hasInterruptsOnly(exit.cause)) return 130
  const failure = Cause.squash(exit.cause)
  if (isPrinted(failure)) return failure.errors.length === 0 ? 0 : 2
  const isInvalidInput = failure instanceof PetstoreClientError && failure.reason._tag === "InvalidInput"
  return CliError.isCliError(failure) || failure instanceof Config.ConfigError || isInvalidInput ? 2 : 1
}

export const describeFailure = (failure: unknown): string | undefined => {
  if (isPrinted(failure)) return undefined
  if (failure instanceof Config.ConfigError) return describeError(failure)
  if (isApiError(failure)) {
    return failure.status === 401
      ? `${failure.message} The command takes it from ADMIN_TOKEN, or else from DATA_DIR/${adminTokenFile}.`
      : failure.message.replaceAll("body.limits", limitFlags).replaceAll("body.expiresAt", "--expires-at")
  }
  const message = Predicate.hasProperty(failure, "message") ? failure.message : failure
  const text = String(message).replaceAll(/\s+/g, " ")
  if (!(failure instanceof PetstoreClientError)) return text
  const { reason, requestId } = failure
  if (reason._tag === "InvalidInput") {
    if (!Schema.isSchemaError(reason.cause)) return text
    return describeIssue(reason.cause.issue, (path) => path[0] === "limits" ? limitFlags : path.join("."))
  }
  // A success with an X-Request-Id is probably from this service, so it carried out the request.
  if (reason._tag === "UnexpectedResponse" && reason.status < 300 && requestId !== undefined) {
    const done = reason.status === 201 ? "issued a key" : "carried out the request"
    return `The service ${done}, but its response is of another version than this command. ` +
      `Use the command of that version. \`${Brand.name} keys log\` shows what was done.`
  }
  const hint = isUntrusted(failure)
    ? "Set NODE_EXTRA_CA_CERTS to a file with the certificate of the authority that signed that of the server."
    : "Start the service, or set PETSTORE_ADMIN_URL to the address of its management port."
  return `${text.replace(/\.?$/, ".")} ${hint}`
}
