/**
 * Shows a client that @hey-api/openapi-ts generates from the OpenAPI document of the service.
 *
 * Generate it with `npx openapi-ts -i http://localhost:8080/openapi.json -o generated`, and compile it. Then run the
 * example with `PETSTORE_URL=… PETSTORE_API_KEY=psk_… node hey-api.js`.
 *
 * The generated client has ids of type `number`, which lose digits beyond 2^53. `PetstoreClient` and `fetch.js` do not.
 */
import { client } from "./generated/client.gen.js"
import { createPet, listPets } from "./generated/sdk.gen.js"

const { PETSTORE_API_KEY = "", PETSTORE_URL = "http://localhost:8080" } = process.env

client.setConfig({ baseUrl: `${PETSTORE_URL}/v1`, auth: PETSTORE_API_KEY })

const created = await createPet({
  body: { name: "Rex", categoryId: 1, status: "available" },
  headers: { "Idempotency-Key": "hey-api" }
})
if (created.error) throw new Error(created.error.code)
const { data } = await listPets({ query: { status: "available", limit: 5 } })
// The type of `error` is the Error body of the document.
const { error } = await createPet({ body: { name: "Rex", categoryId: 1.5 } })
console.log(created.data.name, data?.length, error?.code)

// 2^53 + 1 is the first integer that a number cannot hold.
const exact = await fetch(`${PETSTORE_URL}/v1/pets`, {
  method: "POST",
  headers: { "authorization": `Bearer ${PETSTORE_API_KEY}`, "content-type": "application/json" },
  body: `{"name":"Tom","categoryId":9007199254740993,"status":"pending"}`
})
const pending = await listPets({ query: { status: "pending" } })
console.log((await exact.text()).includes("9007199254740993"), pending.data?.[0]?.categoryId)
