/**
 * The floor: node:http alone, that answers what the service answers, byte for byte, from memory. It checks nothing and
 * asks nobody: no service in Node can be faster.
 */
import { createServer } from "node:http"
import * as Shared from "./shared.ts"

/** The answer of the service at `SERVICE` to a request, to be repeated; by method and path, without the query. */
const recorded = new Map<string, { readonly status: number; readonly headers: Array<string>; readonly body: Buffer }>()

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
    .filter(([name]) => !["connection", "date", "keep-alive", "transfer-encoding"].includes(name)).flat()
  recorded.set(`${method} ${path}`, {
    status: response.status,
    headers,
    body: Buffer.from(await response.arrayBuffer())
  })
}

await record("GET", "/v1/pets")
await record("GET", "/v1/pets/1")
await record("POST", "/v1/pets", `{"name":"Rex","categoryId":1,"status":"available"}`)

createServer((request, response) => {
  const { method, url = "" } = request
  const path = method === "GET" && url.length > "/v1/pets".length && url.charAt(8) === "/" ? "/v1/pets/1" : "/v1/pets"
  const answer = recorded.get(`${method} ${path}`)
  const reply = () => {
    response.writeHead(answer?.status ?? 500, answer?.headers)
    response.end(answer?.body)
  }
  // A body has to be read before its answer.
  if (method === "POST") request.on("end", reply).resume()
  else reply()
}).listen(Shared.port, Shared.host)
