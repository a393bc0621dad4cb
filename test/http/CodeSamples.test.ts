import { assert, it } from "@effect/vitest"
import { OpenApi } from "effect/http-api"
import { PetstoreApi } from "../../src/api/PetstoreApi.ts"
import { samplesOf } from "../../src/http/CodeSamples.ts"

const document = OpenApi.fromApi(PetstoreApi)

const sourcesOf = (method: "get" | "post", path: string) => {
  const samples = samplesOf(document, method, path, document.paths[path]?.[method] ?? assert.fail())
  return samples.map(({ label, source }) => `${label}\n${source}`)
}

it("The samples of /docs send only what is required, read the key from PETSTORE_API_KEY and print the response", () => {
  assert.deepStrictEqual(sourcesOf("post", "/pets"), [
    `curl
curl -X POST "{{origin}}/v1/pets" \\
  -H "Authorization: Bearer $PETSTORE_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{"name":"Rex","categoryId":3}'`,
    `JavaScript
fetch("{{origin}}/v1/pets", {
  method: "POST",
  headers: {
    Authorization: \`Bearer \${globalThis.process?.env.PETSTORE_API_KEY ?? prompt("API key")}\`,
    "Content-Type": "application/json"
  },
  body: JSON.stringify({"name":"Rex","categoryId":3})
}).then(async (response) => console.log(response.status, await response.text()))`,
    `Python
import http.client, json, os

connection = http.client.{{connection}}
headers = {"Authorization": "Bearer " + os.environ["PETSTORE_API_KEY"], "Content-Type": "application/json"}
connection.request("POST", "/v1/pets", json.dumps({"name":"Rex","categoryId":3}), headers)
response = connection.getresponse()
print(response.status, response.read().decode())`
  ])
  assert.deepStrictEqual(sourcesOf("get", "/pets/{petId}"), [
    `curl
curl "{{origin}}/v1/pets/1" \\
  -H "Authorization: Bearer $PETSTORE_API_KEY"`,
    `JavaScript
fetch("{{origin}}/v1/pets/1", {
  method: "GET",
  headers: {
    Authorization: \`Bearer \${globalThis.process?.env.PETSTORE_API_KEY ?? prompt("API key")}\`
  }
}).then(async (response) => console.log(response.status, await response.text()))`,
    `Python
import http.client, os

connection = http.client.{{connection}}
headers = {"Authorization": "Bearer " + os.environ["PETSTORE_API_KEY"]}
connection.request("GET", "/v1/pets/1", headers=headers)
response = connection.getresponse()
print(response.status, response.read().decode())`
  ])
})
