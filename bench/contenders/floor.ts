/**
 * The common part of the floors: node:http alone, which repeats responses of the service from memory, byte for byte: a
 * first page, a pet, a created pet. It checks nothing.
 */
import { createServer } from "node:http"
import * as Shared from "./shared.ts"

/** Records the response of the service at `SERVICE` to a request. */
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
  // Node sends a string in one write with the head.
  return { headers, body: await response.text() }
}

const list = await record("GET", "/v1/pets")
const get = await record("GET", "/v1/pets/1")
const created = await record("POST", "/v1/pets", `{"name":"Rex","categoryId":1,"status":"available"}`)

const listHeaders = list.headers.flat()
const getHeaders = get.headers.flat()
const createdHeaders = created.headers.flat()
/** The headers, without those that differ for each created pet. */
const sameHeaders = created.headers.filter(([name]) => !["content-length", "location"].includes(name)).flat()

/** Creates the pet of a body and returns its id and JSON text. */
type Add = (body: string, added: (id: string, text: string) => void) => void

/** Serves everything from memory, or creates by `add`. */
export const serve = (add?: Add): void => {
  createServer((request, response) => {
    const { method, url = "" } = request
    if (method === "GET") {
      const isOne = url.length > "/v1/pets".length && url.charAt(8) === "/"
      response.writeHead(200, isOne ? getHeaders : listHeaders)
      response.end(isOne ? get.body : list.body)
      return
    }
    // A body must be read before the response.
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
