/**
 * The fast path serves usual requests to the endpoints of an `HttpApi` without Effect's HTTP server and router, at a
 * third of their cost. It takes everything from the contract and its layers: paths, decoders, middleware, handlers and
 * encoders. HttpApi stays the reference: it gets every request whose head is unusual or does not decode, untouched.
 *
 * HttpApi also serves endpoints with a raw or uninterruptible handler, with several security schemes, and with streams,
 * forms, bytes, upgrades or `HttpApiSchema.WithHeaders`. Handlers get no `Scope`, and pre-response handlers do not run.
 */
import { Context, Effect, Predicate } from "effect"
import { HttpApi, type HttpApiGroup } from "effect/http-api"
import type { IncomingMessage } from "node:http"
import { type Call, type CompiledEndpoint, compileEndpoint, type Handler } from "./EndpointCompiler.ts"
import { parseTarget } from "./PathPattern.ts"

export type { Call } from "./EndpointCompiler.ts"

/** Finds the endpoint of a request and decodes the head. Returns `undefined` for requests that HttpApi must serve. */
export type FastPath = (request: IncomingMessage) => Call | undefined

/**
 * Returns the handlers of a group. `HttpApiBuilder.group` registers them in the service of the group, whose type does
 * not show them. Without them no endpoint could be compiled, and `test/http/fast-path` fails.
 */
const handlersOf = (group: HttpApiGroup.Top, context: Context.Context<never>): ReadonlyMap<string, Handler> => {
  const service: unknown = context.mapUnsafe.get(group.key)
  if (!Predicate.hasProperty(service, "handlers") || !(service.handlers instanceof Map)) {
    throw new Error(`The handlers of the group ${group.identifier} are not provided.`)
  }
  return service.handlers
}

/** Compiles the endpoints of `api`. HttpApi serves requests whose body is longer than `maxBodyBytes`. */
export const compile = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>,
  { maxBodyBytes }: { readonly maxBodyBytes: number }
): Effect.Effect<FastPath, never, HttpApiGroup.ToService<Id, Groups>> =>
  Effect.map(Effect.context(), (context) => {
    const literals = new Map<string, CompiledEndpoint>()
    const patterns: Array<CompiledEndpoint> = []
    /** Paths of the endpoints that HttpApi serves. A compiled pattern must not match their requests. */
    const others: Array<RegExp> = []
    HttpApi.reflect(api, {
      onGroup() {},
      onEndpoint(reflected) {
        const { endpoint, group } = reflected
        const handler = handlersOf(group, context).get(endpoint.identifier)
        const compiled = handler && compileEndpoint({ ...reflected, handler, context })
        if (compiled === undefined) others.push(new RegExp(`^${endpoint.path.replace(/:\w+/g, "[^/]*")}$`))
        else if (compiled.pattern.isLiteral) literals.set(`${endpoint.method} ${endpoint.path}`, compiled)
        else patterns.push(compiled)
      }
    })

    return (request) => {
      const { headers, method = "", url = "" } = request
      const target = isUsual(request) ? parseTarget(url) : undefined
      if (target === undefined) return undefined
      const { path, query } = target
      let found = literals.get(`${method} ${path}`)
      let params: Readonly<Record<string, string>> | undefined = {}
      if (found === undefined) {
        for (const candidate of patterns) {
          if (candidate.endpoint.method !== method) continue
          const matched = candidate.pattern.match(path)
          if (matched === undefined) continue
          // Only the router can choose between two patterns.
          if (found !== undefined) return undefined
          found = candidate
          params = matched
        }
        if (found === undefined || others.some((other) => other.test(path))) return undefined
      }
      const length = headers["content-length"]
      const isBodyUsual = found.hasBody
        ? headers["content-type"] === "application/json" && Number(length) > 0 && Number(length) <= maxBodyBytes
        : length === undefined
      return isBodyUsual ? found.call(request, query, params) : undefined
    }
  })

/** Whether the head has no feature that only Effect's server implements. */
const isUsual = ({ headers }: IncomingMessage): boolean =>
  headers.expect === undefined && headers["transfer-encoding"] === undefined &&
  headers["content-encoding"] === undefined
