/**
 * The query of a list of animals as text, written and read as the contract's schemas do (a test holds the two together)
 * at a tenth of the cost.
 */
import { Schema } from "effect"
import { parseLimit } from "../api/Paging.ts"
import { type ListQuery, PetStatus } from "../api/Pets.ts"

const isStatus = Schema.is(PetStatus)

/** The query, if each parameter is there once and plainly right; `text` is what comes after the path. */
export const read = (text: string): ListQuery | undefined => {
  if (text === "") return {}
  if (!text.startsWith("?")) return undefined
  const query: { -readonly [name in keyof ListQuery]: ListQuery[name] } = {}
  for (const parameter of text.slice(1).split("&")) {
    const equals = parameter.indexOf("=")
    if (equals === -1) return undefined
    const value = parameter.slice(equals + 1)
    switch (parameter.slice(0, equals)) {
      case "limit": {
        const limit = parseLimit(value)
        if (query.limit !== undefined || limit === undefined) return undefined
        query.limit = limit
        break
      }
      case "status":
        if (query.status !== undefined || !isStatus(value)) return undefined
        query.status = value
        break
      case "cursor": {
        const digits = Buffer.from(value, "base64url").toString("latin1")
        if (query.cursor !== undefined || !/^(?:0|[1-9]\d{0,17})$/.test(digits) || cursorOf(digits) !== value) {
          return undefined
        }
        query.cursor = BigInt(digits)
        break
      }
      default:
        return undefined
    }
  }
  return query
}

/** The query of the next page. */
export const write = ({ cursor = 0n, limit, status }: ListQuery): string =>
  `?${limit === undefined ? "" : `limit=${limit}&`}${status === undefined ? "" : `status=${status}&`}cursor=${
    cursorOf(String(cursor))
  }`

const cursorOf = (digits: string): string => Buffer.from(digits, "latin1").toString("base64url")
