/**
 * The floor: a bare node:http server, faster than any service on Node can be. It checks nothing, repeats responses of the
 * service at `SERVICE` from memory, byte for byte, and logs requests: the first page, a pet, and a created pet.
 */
import { createServer } from "node:http"
import * as Shared from "./shared.ts"

const record = async (method: string, path: string, body?: string) => {
  const response = await fetch(`${process.env.SERVICE}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${process.env.KEY}`,
      ...body !== undefined && { "content-type": "application/json" }
    },
    ...body !== undefined && { body }
  })
  const headers = [...response.headers]
    .filter(([name]) => !["connection", "date", "keep-alive", "transfer-encoding"].includes(name))
  // A string, because Node sends it in one write with the head.
  return { headers: headers.flat(), body: await response.text() }
}

const list = await record("GET", "/v1/pets")
const get = await record("GET", "/v1/pets/1")
const created = await record("POST", "/v1/pets", `{"name":"Rex","categoryId":1,"status":"available"}`)

createServer((request, response) => {
  const startedAt = performance.now()
  const { method = "", url = "" } = request
  const send = (status: number, { body, headers }: typeof list, route: string) => {
    response.writeHead(status, headers).end(body)
    const durationMs = performance.now() - startedAt
    Shared.log({ method, route, status, durationMs, keyId: "floor", requestId: "floor" })
  }
  // A body must be read before the response.
  if (method === "POST") request.on("end", () => send(201, created, "/v1/pets")).resume()
  else if (url.charAt("/v1/pets".length) === "/") send(200, get, "/v1/pets/:petId")
  else send(200, list, "/v1/pets")
}).listen(Shared.port, Shared.host)
