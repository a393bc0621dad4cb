/** Tests the forms of the address of the management port. */
import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { parseAddress } from "../../src/command/AdminConnection.ts"

describe("PETSTORE_ADMIN_URL", () => {
  it("can have no scheme, and no port without a scheme", () => {
    const addresses = [
      ["localhost:9090", "http://localhost:9090"],
      ["127.0.0.1:1234", "http://127.0.0.1:1234"],
      ["[::1]:9090", "http://[::1]:9090"],
      ["[::1]", "http://[::1]:9191"],
      ["petstore.internal", "http://petstore.internal:9191"],
      ["petstore.internal:80", "http://petstore.internal"],
      [" localhost:9090/ ", "http://localhost:9090"],
      ["http://petstore.internal", "http://petstore.internal"],
      ["HTTP://LOCALHOST:9090/", "http://localhost:9090"],
      ["https://petstore.internal", "https://petstore.internal"],
      ["https://petstore.internal:9443/", "https://petstore.internal:9443"]
    ] as const
    for (const [text, expected] of addresses) {
      assert.deepStrictEqual(parseAddress(text, 9191), Result.succeed(expected), text)
    }
  })

  it("is rejected with the reason, which does not repeat the address", () => {
    const reasons = [
      ["ftp://localhost:9090", "has the scheme ftp, which is not http or https"],
      ["file:///etc/passwd", "has the scheme file, which is not http or https"],
      ["localhost:9090/admin", "has a path, a query or a hash"],
      ["http://localhost:9090/v1", "has a path, a query or a hash"],
      ["http://localhost:9090?x=1", "has a path, a query or a hash"],
      ["localhost:9090#x", "has a path, a query or a hash"],
      ["http://admin:secret@localhost", "has a user name or a password"],
      ["localhost:99999", "is not an address"],
      ["localhost:port", "is not an address"],
      ["::1", "is not an address"],
      ["http://", "is not an address"],
      ["http:localhost:9090", "is not an address"],
      ["local host", "is not an address"],
      ["", "is not an address"]
    ] as const
    for (const [text, reason] of reasons) assert.deepStrictEqual(parseAddress(text, 9191), Result.fail(reason), text)
  })
})
