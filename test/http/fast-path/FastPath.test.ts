import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApi, HttpApiBuilder, HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { IncomingMessage } from "node:http"
import { Socket } from "node:net"
import * as FastPath from "../../../src/http/fast-path/FastPath.ts"

const params = { id: Schema.String }

class Api extends HttpApi.make("api").add(
  HttpApiGroup.make("group").add(
    HttpApiEndpoint.get("compiled", "/:id/b", { params, success: Schema.String }),
    HttpApiEndpoint.get("raw", "/a/:id", { params, success: Schema.String })
  )
) {}

const handlers = HttpApiBuilder.group(Api, "group", (builder) =>
  builder
    .handle("compiled", () => Effect.succeed("compiled"))
    .handleRaw("raw", () => Effect.succeed(HttpServerResponse.text("raw"))))

const request = (url: string): IncomingMessage =>
  Object.assign(new IncomingMessage(new Socket()), { method: "GET", url, headers: {} })

describe("The fast path", () => {
  it.effect("leaves a request to HttpApi if an endpoint that it does not compile matches too", () =>
    Effect.gen(function*() {
      const fastPath = yield* FastPath.compile(Api, { maxBodyBytes: 0 })
      assert.strictEqual(fastPath(request("/x/b"))?.endpoint.identifier, "compiled")
      assert.isUndefined(fastPath(request("/a/b")))
      assert.isUndefined(fastPath(request("/a/x")))
    }).pipe(Effect.provide(handlers)))
})
