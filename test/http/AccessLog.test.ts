/** Tests the log line of a request: the direct line in JSON equals the line of the general logger. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Logger, References } from "effect"
import { PetstoreApi } from "../../src/api/PetstoreApi.ts"
import { recordResponse } from "../../src/http/AccessLog.ts"
import { Call } from "../../src/http/Call.ts"
import { JsonLines } from "../../src/observability/LogLines.ts"

interface Request {
  readonly keyId?: string | undefined
  /** The target of a request without a route. */
  readonly url?: string | undefined
}

/** Records a response, and returns the lines of the general logger and the lines that were written directly. */
const record = ({ keyId, url }: Request, isDirect = true, level: "Info" | "Warn" = "Info") =>
  Effect.gen(function*() {
    const general: Array<string> = []
    const direct: Array<string> = []
    const logger = Logger.map(Logger.formatJson, (line) => void general.push(line))
    const call = new Call("id:1.2-3_4", 0n)
    call.endpoint = url === undefined ? PetstoreApi.groups.pets.endpoints.getPet : undefined
    call.keyId = keyId
    const json = isDirect ? { logger, write: (line: string) => void direct.push(line) } : undefined
    yield* recordResponse({ method: "GET", url: url ?? "/v1/pets/1" }, call, 200).pipe(
      Effect.provideService(JsonLines, json),
      Effect.provideService(References.MinimumLogLevel, level),
      Effect.provide(Logger.layer([logger]))
    )
    return { general, direct }
  })

/** The id of the key and the target of a request without a route, and fields of its line. */
const requests: ReadonlyArray<readonly [keyId: string | undefined, url: string | undefined, fields: object]> = [
  ["key_0123456789abcdef", undefined, { keyId: "key_0123456789abcdef", route: "/v1/pets/:petId" }],
  ["a \"key\" of an operator\n", undefined, { keyId: "a \"key\" of an operator\n", route: "/v1/pets/:petId" }],
  [undefined, undefined, { keyId: "none", route: "/v1/pets/:petId" }],
  [undefined, "/v1/pet", { keyId: "none", route: "none", path: "/v1/pet" }],
  [undefined, "/login?password=secret", { path: "/login" }],
  [undefined, `/psk_${"a".repeat(38)}/adm_${"b".repeat(32)}`, { path: "/psk_…/adm_…" }],
  [undefined, "http://user:password@host/x", { path: "/x" }],
  [undefined, "/\u001b[2J\u0085\"\u00e4", { path: `/%1B[2J%85"%E4` }],
  [undefined, "/%0a%22", { path: "/%0a%22" }],
  [undefined, `/${"x".repeat(10_000)}`, { path: `/${"x".repeat(199)}…` }]
]

describe("The access log", () => {
  it.effect("has the facts of a request, and the path of a request without a route, without secrets", () =>
    Effect.gen(function*() {
      for (const [keyId, url, fields] of requests) {
        const { general } = yield* record({ keyId, url }, false)
        const { direct } = yield* record({ keyId, url })
        assert.lengthOf(general, 1)
        assert.deepStrictEqual(direct, general)
        const { annotations }: { readonly annotations: Record<string, unknown> } = JSON.parse(direct[0] ?? "")
        const names = ["method", "route", ...url === undefined ? [] : ["path"], "status", "durationMs", "keyId"]
        assert.deepStrictEqual(Object.keys(annotations), [...names, "requestId"])
        const expected = { method: "GET", status: 200, durationMs: 0, requestId: "id:1.2-3_4", ...fields }
        assert.deepInclude(annotations, expected)
      }
    }))

  it.effect("has no line above level Info", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* record({}, true, "Warn"), { direct: [], general: [] })
    }))
})
