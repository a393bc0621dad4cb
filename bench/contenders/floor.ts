/**
 * The common part of the floors. They use only node:http, and check nothing. They repeat responses of the service from
 * memory, byte for byte: the first page, a pet, and a created pet.
 */
import { createServer } from "node:http"
import * as Shared from "./shared.ts"

/** Requests a response from the service at the address in `SERVICE`, which this server then repeats. */
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
  return { headers, body: await response.text() }
}

const list = await record("GET", "/v1/pets")
const get = await record("GET", "/v1/pets/1")
const created = await record("POST", "/v1/pets", `{"name":"Rex","categoryId":1,"status":"available"}`)

const listHeaders = list.headers.flat()
const getHeaders = get.headers.flat()
const createdHeaders = created.headers.flat()
/** The headers that are the same for every created pet. */
const commonHeaders = created.headers.filter(([name]) => !["content-length", "location"].includes(name)).flat()

/** Creates the pet of a body, and calls `onCreated` with its id and JSON text. */
type Create = (body: string, onCreated: (id: string, text: string) => void) => void

/** Serves reads from memory. Creates call `create`, or repeat a response from memory if it is missing. */
export const serve = (create?: Create): void => {
  createServer((request, response) => {
    const { method, url = "" } = request
    if (method === "GET") {
      const isOne = url.length > "/v1/pets".length && url.charAt(8) === "/"
      response.writeHead(200, isOne ? getHeaders : listHeaders)
      response.end(isOne ? get.body : list.body)
      return
    }
    // A body must be read before the response.
    if (create === undefined) {
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
      create(body, (id, text) => {
        const own = ["location", `/v1/pets/${id}`, "content-length", String(Buffer.byteLength(text))]
        response.writeHead(201, [...commonHeaders, ...own])
        response.end(text)
      }))
  }).listen(Shared.port, Shared.host)
}
