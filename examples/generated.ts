/**
 * Shows a client with types that openapi-typescript generates from the OpenAPI document of the service.
 *
 * Generate the types with `npx openapi-typescript http://localhost:8080/openapi.json -o schema.d.ts`. Then run the
 * example with `PETSTORE_URL=… PETSTORE_API_KEY=psk_… node generated.ts`.
 */
import createClient from "openapi-fetch"
import type { paths } from "./schema.d.ts"

const { PETSTORE_API_KEY = "", PETSTORE_URL = "http://localhost:8080" } = process.env

const client = createClient<paths>({
  baseUrl: `${PETSTORE_URL}/v1`,
  headers: { authorization: `Bearer ${PETSTORE_API_KEY}` }
})

const created = await client.POST("/pets", {
  body: { name: "Rex", categoryId: 1, status: "available" },
  params: { header: { "Idempotency-Key": "generated" } }
})
if (created.error) throw new Error(created.error.code)
const { data } = await client.GET("/pets", { params: { query: { status: "available", limit: 5 } } })
// The type of `error` is the Error body of the document.
const { error } = await client.POST("/pets", { body: { name: "Rex", categoryId: 1.5 } })
console.log(created.data.name, data?.length, error?.code)
