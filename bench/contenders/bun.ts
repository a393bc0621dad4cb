/** A service on Bun, with its HTTP server, its router and its PostgreSQL driver. */
import { randomUUID } from "node:crypto"
import * as Shared from "./shared.ts"

interface BunRequest extends Omit<Request, "json"> {
  readonly params: Readonly<Record<string, string>>
  json(): Promise<Partial<Shared.NewPet> | null>
}
type Handler = (request: BunRequest) => Promise<Response>

/** The part of Bun that this program uses. Bun's own types conflict with those of Node. */
declare const Bun: {
  readonly SQL: new(url: string, options: { readonly max: number }) => {
    unsafe<Row>(text: string, values: ReadonlyArray<unknown>): Promise<ReadonlyArray<Row>>
  }
  serve(options: {
    readonly hostname: string
    readonly port: number
    readonly routes: Readonly<Record<string, Readonly<Record<string, Handler>>>>
    readonly fetch: () => Response
  }): void
}

const sql = new Bun.SQL(Shared.databaseUrl, { max: 10 })
const database = Shared.makeDatabase((_, text, values) => sql.unsafe(text, values))
const authenticate = Shared.makeAuthenticate(database.findKey)

const fail = (body: Shared.ErrorBody): Response => Response.json(body, { status: body.status })

/** Returns a handler with authentication, limits and the log line. */
const route =
  (path: string, handle: (request: BunRequest, key: Shared.Key) => Promise<Response>): Handler => async (request) => {
    const startedAt = performance.now()
    const requestId = randomUUID()
    const key = await authenticate(request.headers.get("authorization"))
    let response: Response
    if (key === undefined) {
      response = fail(Shared.errors.unauthorized)
      response.headers.set("www-authenticate", "Bearer")
    } else {
      const { headers, isAllowed } = Shared.charge(key)
      response = isAllowed
        ? await handle(request, key).catch(() => fail(Shared.errors.internal))
        : fail(Shared.errors.limited)
      for (const name in headers) response.headers.set(name, headers[name] ?? "")
    }
    response.headers.set("x-request-id", requestId)
    const { method } = request
    const durationMs = performance.now() - startedAt
    Shared.log({ method, route: path, status: response.status, durationMs, keyId: key?.id ?? "none", requestId })
    return response
  }

const statuses = new Set<unknown>([undefined, "available", "pending", "sold"])

const list = async (request: BunRequest): Promise<Response> => {
  const { url } = request
  const start = url.indexOf("?")
  const query = new URLSearchParams(start === -1 ? "" : url.slice(start))
  const limit = Number(query.get("limit") ?? 20)
  const cursor = query.get("cursor") ?? undefined
  if (!(Number.isInteger(limit) && limit >= 1 && limit <= 100)) return fail(Shared.errors.invalid)
  const { link, pets } = await database.list({ limit, cursor })
  return Response.json(pets, link === undefined ? {} : { headers: { link } })
}

const create = async (request: BunRequest, key: Shared.Key): Promise<Response> => {
  const { categoryId, name, status } = await request.json().catch(() => null) ?? {}
  if (typeof name !== "string" || !Number.isSafeInteger(categoryId) || !statuses.has(status)) {
    return fail(Shared.errors.invalid)
  }
  const pet = { name, categoryId: Number(categoryId), ...status !== undefined && { status } }
  const created = await database.create(pet, key.id, request.headers.get("idempotency-key") ?? undefined)
  if (created === "reused") return fail(Shared.errors.reused)
  const { id, isReplay } = created
  const headers = { location: `/v1/pets/${id}`, ...isReplay && { "idempotent-replayed": "true" } }
  return Response.json({ id, ...pet }, { status: 201, headers })
}

const get = async (request: BunRequest): Promise<Response> => {
  const id = Number(request.params.petId)
  if (!Number.isSafeInteger(id)) return fail(Shared.errors.invalid)
  const pet = await database.find(id)
  return pet === undefined ? fail(Shared.errors.notFound) : Response.json(pet)
}

Bun.serve({
  hostname: Shared.host,
  port: Shared.port,
  routes: {
    "/v1/pets": { GET: route("/v1/pets", list), POST: route("/v1/pets", create) },
    "/v1/pets/:petId": { GET: route("/v1/pets/:petId", get) }
  },
  fetch: () => fail(Shared.errors.notFound)
})
