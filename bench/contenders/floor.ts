/**
 * The floor: node:http alone, that answers what the service answers, byte for byte, from memory. It checks nothing and
 * asks nobody: no service in Node can be faster.
 */
import { createServer } from "node:http"
import * as Shared from "./shared.ts"

/** The answer of the service at `SERVICE` to a request, to be repeated. */
const record = async (method: string, path: string, body?: string) => {
  const response = await fetch(`${process.env.SERVICE}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${process.env.KEY}`,
      ...body !== undefined && { "content-type": "application/json" }
    },
    ...body !== undefined && { body }
  })
  const all = [...response.headers]
    .filter(([name]) => !["connection", "date", "keep-alive", "transfer-encoding"].includes(name))
  return {
    status: response.status,
    headers: all.flat(),
    /** Without those that each addition has of its own. */
    sameHeaders: all.filter(([name]) => !["content-length", "location"].includes(name)).flat(),
    body: Buffer.from(await response.arrayBuffer())
  }
}

const list = await record("GET", "/v1/pets")
const get = await record("GET", "/v1/pets/1")
const created = await record("POST", "/v1/pets", `{"name":"Rex","categoryId":1,"status":"available"}`)

/** Adds the animal in a body, and tells its id and its text. */
type Add = (body: Buffer, added: (id: number, text: string) => void) => void

/** Serves: all from memory, or additions by `add`. */
export const serve = (add?: Add): void => {
  createServer((request, response) => {
    const { method, url = "" } = request
    if (method === "GET") {
      const { body, headers, status } = url.length > "/v1/pets".length && url.charAt(8) === "/" ? get : list
      response.writeHead(status, headers)
      response.end(body)
      return
    }
    // A body has to be read before its answer.
    if (add === undefined) {
      request.on("end", () => {
        response.writeHead(created.status, created.headers)
        response.end(created.body)
      }).resume()
      return
    }
    request.once("data", (body: Buffer) =>
      add(body, (id, text) => {
        const own = ["location", `/v1/pets/${id}`, "content-length", String(Buffer.byteLength(text))]
        response.writeHead(created.status, [...created.sameHeaders, ...own])
        response.end(text)
      }))
  }).listen(Shared.port, Shared.host)
}
