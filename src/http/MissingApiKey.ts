import * as Errors from "../api/Errors.ts"
import { headerOf, type RequestHead } from "./RequestHead.ts"

const adminToken = new Errors.InvalidApiKey({
  message: "This is an admin token, which works only on the management port. Send an API key: psk_…"
})

const describeCredential = (request: RequestHead): string | undefined => {
  const authorization = headerOf(request, "authorization")?.trim()
  if (authorization !== undefined && authorization !== "") {
    if (/^bearer$/i.test(authorization)) return "Authorization: Bearer without a key"
    const [scheme] = /^(?:basic|digest|token|apikey)\b/i.exec(authorization) ?? []
    return scheme === undefined ? "Authorization without Bearer" : `Authorization: ${scheme}`
  }
  if (headerOf(request, "x-api-key") !== undefined) return "X-API-Key"
  return /[?&](?:api_?key|key|(?:access_)?token)=/i.test(request.url)
    ? "a key in the URL, which logs can show"
    : undefined
}

/** The error for a request without an API key as bearer token. The message says what the request has in its place. */
export const errorOf = (
  request: RequestHead,
  token: string | undefined
): Errors.MissingApiKey | Errors.InvalidApiKey => {
  if (token !== undefined) return adminToken
  const found = describeCredential(request)
  const missing = new Errors.MissingApiKey()
  return found === undefined ? missing : new Errors.MissingApiKey({ message: `Found ${found}. ${missing.message}` })
}
