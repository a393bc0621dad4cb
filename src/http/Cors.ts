import { Schema } from "effect"
import { HttpApi, type HttpApiGroup } from "effect/http-api"
import { exposedHeaders } from "../api/ResponseHeaders.ts"

/** The request headers that the endpoints of `api` declare, such as `Idempotency-Key`. */
const declaredHeaders = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>
): ReadonlySet<string> => {
  const names = new Set<string>()
  HttpApi.reflect(api, {
    onGroup() {},
    onEndpoint({ endpoint: { headers } }) {
      const ast = headers && Schema.toEncoded(headers).ast
      if (ast?._tag !== "Objects") return
      for (const { name } of ast.propertySignatures) {
        names.add(String(name).replaceAll(/\b[a-z]/g, (letter) => letter.toUpperCase()))
      }
    }
  })
  return names
}

export const makeCorsHeaders = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  origins: ReadonlySet<string>
) => {
  // The last three carry trace contexts: Effect's clients and tracing libraries add them.
  const acceptedHeaders = [
    "Authorization",
    "Content-Type",
    ...declaredHeaders(api),
    "X-Request-Id",
    "b3",
    "traceparent",
    "tracestate"
  ].join(", ")
  return (method: string, origin: string | undefined, allow = ""): Readonly<Record<string, string>> | undefined => {
    if (origins.size === 0) return undefined
    if (origin === undefined || !(origins.has("*") || origins.has(origin))) return { vary: "Origin" }
    const granted = { vary: "Origin", "access-control-allow-origin": origin }
    return method !== "OPTIONS"
      ? { ...granted, "access-control-expose-headers": exposedHeaders.join(", ") }
      : {
        ...granted,
        "access-control-allow-methods": allow,
        "access-control-allow-headers": acceptedHeaders,
        "access-control-max-age": "86400"
      }
  }
}
