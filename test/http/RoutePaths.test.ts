import { assert, it } from "@effect/vitest"
import { Context } from "effect"
import { HttpApi, HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { deprecate, Deprecation } from "../../src/api/OperationMiddleware.ts"
import { makeRoutesAt } from "../../src/http/RoutePaths.ts"

const group = HttpApiGroup.make("things").add(
  HttpApiEndpoint.patch("change", "/things/:id"),
  HttpApiEndpoint.get("old", "/things/:id").annotateMerge(deprecate(new Date(0), new Date(1), "/things", "/docs"))
)
const routesAt = makeRoutesAt(HttpApi.make("things").add(group), ["/"])

it("Only the deprecated operation of a path announces a sunset, and another one of the same path does not", () => {
  const announced = (url: string, method: string) => {
    const { endpoint } = routesAt(url, method)
    return endpoint && Context.getOrUndefined(endpoint.annotations, Deprecation)?.headers.link
  }
  const link = `</things>; rel="successor-version", </docs>; rel="deprecation"; type="text/html", ` +
    `</docs>; rel="sunset"; type="text/html"`
  for (const method of ["GET", "HEAD"]) assert.strictEqual(announced("/things/1?a", method), link)
  for (const method of ["PATCH", "OPTIONS", "PUT"]) assert.isUndefined(announced("/things/1", method))
  assert.isUndefined(announced("/", "GET"))
  assert.deepStrictEqual(routesAt("/things/1").methods, ["PATCH", "GET", "HEAD", "OPTIONS"])
})
