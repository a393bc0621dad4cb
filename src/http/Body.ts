/** What the body of a request may be: JSON text of a bounded size. */
import { ByteSize, Effect } from "effect"
import { type Headers, HttpMethod, HttpServerRequest } from "effect/http"
import { isUtf8 } from "node:buffer"
import { InvalidRequest, PayloadTooLarge, UnsupportedMediaType } from "../api/Errors.ts"

/** The largest body that is read. */
export const maxBytes = 65_536
export const maxSize = ByteSize.bytes(maxBytes)

/** What a body that the service does not take is refused with. */
export const tooLarge = new PayloadTooLarge()
export const notJson = new UnsupportedMediaType()

/**
 * Parameters may be empty (RFC 9110 §5.6.6). Each space can be matched in one way only, or a long header would take for
 * ever.
 */
const json = /^application\/json\s*(?:;\s*(?:charset="?utf-8"?\s*)?)*$/i
const byteOrderMark = Buffer.from("\ufeff")

/**
 * Refuses a body that is not plain JSON text: bytes that are no UTF-8 would be kept as something else than was sent,
 * and a byte order mark is none of JSON's (RFC 8259 §8.1).
 */
export const refuseOtherThanJson = Effect.gen(function*() {
  const request = yield* HttpServerRequest.HttpServerRequest
  if (!HttpMethod.hasBody(request.method)) return
  // What says that it is too large is not waited for.
  const isTooLarge = Number(request.headers["content-length"]) > maxBytes
  const body = isTooLarge
    ? Effect.fail(tooLarge)
    : Effect.map(Effect.orDie(request.arrayBuffer), (bytes) => Buffer.from(bytes))
  yield* refusal(yield* body, request.headers) ?? Effect.void
})

const refusal = (
  body: Buffer,
  headers: Headers.Headers
): InvalidRequest | PayloadTooLarge | UnsupportedMediaType | undefined => {
  if (body.length > maxBytes) return tooLarge
  if (body.length === 0) return undefined
  const {
    "content-encoding": encoding = "identity",
    "content-type": type = "",
    "transfer-encoding": transfer = "chunked"
  } = headers
  // Names of codings have no case (RFC 9110 §8.4.1, RFC 9112 §7).
  if (!json.test(type) || encoding.toLowerCase() !== "identity" || transfer.toLowerCase() !== "chunked") {
    return notJson
  }
  if (!isUtf8(body)) return new InvalidRequest({ message: "Invalid request: body: expected valid UTF-8." })
  return body.subarray(0, byteOrderMark.length).equals(byteOrderMark)
    ? new InvalidRequest({ message: "Invalid request: body: expected no byte order mark." })
    : undefined
}
