/**
 * What the floors have in common: node:http alone, that repeats answers of the service from memory, byte for byte: a
 * first page, an animal, an addition. It checks nothing.
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
  const headers = [...response.headers]
    .filter(([name]) => !["connection", "date", "keep-alive", "transfer-encoding"].includes(name))
  // As a string, which Node sends in one write with the head.
  return { headers, body: await response.text() }
}

const list = await record("GET", "/v1/pets")
const get = await record("GET", "/v1/pets/1")
const created = await record("POST", "/v1/pets", `{"name":"Rex","categoryId":1,"status":"available"}`)

const listHeaders = list.headers.flat()
const getHeaders = get.headers.flat()
const createdHeaders = created.headers.flat()
/** Without those that each addition has of its own. */
const sameHeaders = created.headers.filter(([name]) => !["content-length", "location"].includes(name)).flat()

/** Adds the animal in a body, and tells its id and its text. */
type Add = (body: string, added: (id: string, text: string) => void) => void

/** Serves: all from memory, or additions by `add`. */
export const serve = (add?: Add): void => {
  createServer((request, response) => {
    const { method, url = "" } = request
    if (method === "GET") {
      const isOne = url.length > "/v1/pets".length && url.charAt(8) === "/"
      response.writeHead(200, isOne ? getHeaders : listHeaders)
      response.end(isOne ? get.body : list.body)
      return
    }
    // A body has to be read before its answer.
    if (add === undefined) {
      request.on("end", () => {
        response.writeHead(201, createdHeaders)
        response.end(created.body)
      }).resume()
      return
    }
    let body = ""
    request.setEncoding("utf8").on("data", (chunk: string) => {
      body += chunk
    }).on("end", () =>
      add(body, (id, text) => {
        const own = ["location", `/v1/pets/${id}`, "content-length", String(Buffer.byteLength(text))]
        response.writeHead(201, [...sameHeaders, ...own])
        response.end(text)
      }))
  }).listen(Shared.port, Shared.host)
}
