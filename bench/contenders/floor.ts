/**
 * The floor: a bare node:http server, faster than any service on Node can be. It checks and logs nothing, and repeats
 * responses of the service at `SERVICE` from memory, byte for byte: the first page, a pet, and a created pet.
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
  const { method, url = "" } = request
  if (method === "GET") {
    const { body, headers } = url.charAt("/v1/pets".length) === "/" ? get : list
    response.writeHead(200, headers).end(body)
  } else {
    // A body must be read before the response.
    request.on("end", () => response.writeHead(201, created.headers).end(created.body)).resume()
  }
}).listen(Shared.port, Shared.host)
