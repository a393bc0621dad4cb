/** A service of a later version, with all changes that docs/reference.md announces as compatible. */
import type { RequestListener } from "node:http"

const pets = [
  { id: 1, name: "Rex", categoryId: 3, status: "reserved", chip: { vendor: "acme" } },
  { id: 2, name: "Tom", categoryId: 3, status: "sold", chip: null }
]

/** A cursor in another form than today's: neither base64url nor a pet's id. */
const cursor = "v2:after=1;shard=b~"

/** An audit entry with a new action and a new field. */
const transfer = {
  id: 1,
  at: "2026-11-28T00:00:00.000Z",
  action: "transfer",
  keyId: "key_a",
  keyName: "a",
  operator: "admin",
  address: null,
  before: { owner: "b" },
  after: { owner: "c" },
  reason: "sold"
}

const errors: Readonly<Record<string, readonly [status: number, code: string]>> = {
  "/v1/pets/404": [404, "archived"],
  "/v1/pets/401": [401, "suspended_api_key"],
  "/v1/pets/429": [429, "tenant_limit_exceeded"],
  "/v1/pets/451": [451, "withheld"]
}

export const newerService: RequestListener = ({ method, url = "" }, response) => {
  const { pathname, searchParams } = new URL(url, "http://localhost")
  const error = errors[pathname]
  response.setHeader("content-type", "application/json").setHeader("x-new", "1")
  if (pathname === "/v1/pets/307") {
    response.writeHead(307, { location: "http://elsewhere.test/in?token=t" }).end()
  } else if (error !== undefined) {
    const [status, code] = error
    response.writeHead(status).end(JSON.stringify({ code, message: "Later.", status, details: [] }))
  } else if (pathname === "/admin/audit") {
    response.end(JSON.stringify([transfer]))
  } else if (method === "POST") {
    // There is no `Location`, because the operation that it led to has been removed.
    response.writeHead(201).end(JSON.stringify(pets[0]))
  } else if (searchParams.get("cursor") === cursor) {
    response.setHeader("link", `</v1/pets>; rel="first"`).end(JSON.stringify(pets.slice(1)))
  } else {
    const next = `</v1/pets?limit=100&cursor=${encodeURIComponent(cursor)}&sort=id>; rel="next"`
    response.setHeader("link", `</v1/pets>; rel="first", ${next}`).end(JSON.stringify(pets.slice(0, 1)))
  }
}
