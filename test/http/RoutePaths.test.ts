import { assert, it } from "@effect/vitest"
import { Context } from "effect"
import { HttpApi, HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { deprecate, Deprecation, Sunset } from "../../src/api/OperationMiddleware.ts"
import { PetstoreApi } from "../../src/api/PetstoreApi.ts"
import { makeRoutesAt } from "../../src/http/RoutePaths.ts"

const [since, sunset] = [new Date("2026-01-02"), new Date("2027-01-02")]
const group = HttpApiGroup.make("things").add(
  HttpApiEndpoint.patch("change", "/things/:id"),
  HttpApiEndpoint.get("old", "/things/:id").annotateMerge(deprecate(since, sunset, "/things")),
  HttpApiEndpoint.get("gone", "/old").annotateMerge(deprecate(since, sunset, "/new"))
)
const routesAt = makeRoutesAt(HttpApi.make("things").add(group), ["/"])

it("Only the deprecated operation of a path announces a sunset, and another one of the same path does not", () => {
  const announced = (url: string, method: string) => {
    const { endpoint } = routesAt(url, method)
    return endpoint && Context.getOrUndefined(endpoint.annotations, Deprecation)?.headers.link
  }
  const link = (path: string) => `<${path}>; rel="successor-version"`
  for (const method of ["GET", "HEAD"]) assert.strictEqual(announced("/things/1?a", method), link("/things"))
  for (const method of ["PATCH", "OPTIONS", "PUT"]) assert.isUndefined(announced("/things/1", method))
  // The only operation of a path decides the headers of responses to other methods too.
  for (const method of ["GET", "OPTIONS", "PUT"]) assert.strictEqual(announced("/old", method), link("/new"))
  assert.isUndefined(announced("/", "GET"))
  assert.deepStrictEqual(routesAt("/things/1").methods, ["PATCH", "GET", "HEAD", "OPTIONS"])
})

it("Each deprecated operation of the contract, and no other, has the middleware that removes it", () => {
  const [removable, deprecated] = [new Set<string>(), new Set<string>()]
  HttpApi.reflect(PetstoreApi, {
    onGroup() {},
    onEndpoint({ endpoint, middleware }) {
      if ([...middleware].some(({ key }) => key === Sunset.key)) removable.add(endpoint.identifier)
      if (Context.getOrUndefined(endpoint.annotations, Deprecation) !== undefined) deprecated.add(endpoint.identifier)
    }
  })
  assert.deepStrictEqual(removable, deprecated)
})
