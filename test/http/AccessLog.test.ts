/** Tests the log line of a request: the direct line in JSON equals the line of the general logger. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Logger, References } from "effect"
import { PetstoreApi } from "../../src/api/PetstoreApi.ts"
import { recordResponse } from "../../src/http/AccessLog.ts"
import { Call } from "../../src/http/Call.ts"
import { JsonLines } from "../../src/observability/LogLines.ts"

interface Options {
  readonly keyId?: string
  readonly loggers?: number
  readonly level?: "Info" | "Warn"
  /** The target of a request without a route. */
  readonly url?: string
}

/** Records a response, and returns the lines of the general logger and the lines that were written directly. */
const record = (isDirect: boolean, { keyId, level = "Info", loggers = 1, url }: Options = {}) =>
  Effect.gen(function*() {
    const general: Array<string> = []
    const direct: Array<string> = []
    const logger = Logger.map(Logger.formatJson, (line) => void general.push(line))
    const others = Array.from({ length: loggers - 1 }, () => Logger.make(() => {}))
    const call = new Call("id:1.2-3_4", 0n)
    call.endpoint = url === undefined ? PetstoreApi.groups.pets.endpoints.getPet : undefined
    call.keyId = keyId
    const json = isDirect ? { logger, write: (line: string) => void direct.push(line) } : undefined
    yield* recordResponse({ method: "GET", url: url ?? "/v1/pets/1" }, call, 200).pipe(
      Effect.provideService(JsonLines, json),
      Effect.provideService(References.MinimumLogLevel, level),
      Effect.provide(Logger.layer([logger, ...others]))
    )
    return { general, direct }
  })

describe("The access log", () => {
  for (const keyId of ["key_0123456789abcdef", "a \"key\" of an operator\n", undefined]) {
    it.effect(`writes the line of the general logger directly, for the key ${JSON.stringify(keyId)}`, () =>
      Effect.gen(function*() {
        const { general } = yield* record(false, { ...keyId !== undefined && { keyId } })
        const { direct } = yield* record(true, { ...keyId !== undefined && { keyId } })
        assert.lengthOf(general, 1)
        assert.deepStrictEqual(direct, general)
        const { annotations }: { readonly annotations: Record<string, unknown> } = JSON.parse(direct[0] ?? "")
        assert.deepStrictEqual(annotations, {
          method: "GET",
          route: "/v1/pets/:petId",
          status: 200,
          durationMs: 0,
          keyId: keyId ?? "none",
          requestId: "id:1.2-3_4"
        })
      }))
  }

  const paths: ReadonlyArray<readonly [string, string]> = [
    ["/v1/pet", "/v1/pet"],
    ["/login?password=secret", "/login"],
    [`/psk_${"a".repeat(38)}/adm_${"b".repeat(32)}`, "/psk_…/adm_…"],
    ["http://user:password@host/x", "/x"],
    ["/\u001b[2J\u0085\"\u00e4", `/%1B[2J%85"%E4`],
    ["/%0a%22", "/%0a%22"],
    [`/${"x".repeat(10_000)}`, `/${"x".repeat(199)}…`]
  ]
  for (const [url, path] of paths) {
    it.effect(`has the path of a request without a route, without secrets: ${JSON.stringify(url.slice(0, 40))}`, () =>
      Effect.gen(function*() {
        const { general } = yield* record(false, { url })
        const { direct } = yield* record(true, { url })
        assert.deepStrictEqual(direct, general)
        const { annotations }: { readonly annotations: Record<string, unknown> } = JSON.parse(direct[0] ?? "")
        assert.deepInclude(annotations, { route: "none", path })
      }))
  }

  it.effect("uses the general logger when there is another logger", () =>
    Effect.gen(function*() {
      const { direct, general } = yield* record(true, { loggers: 2 })
      assert.lengthOf(direct, 0)
      assert.lengthOf(general, 1)
    }))

  it.effect("has no line above level Info", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* record(true, { level: "Warn" }), { direct: [], general: [] })
    }))
})
