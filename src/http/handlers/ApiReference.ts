/**
 * The OpenAPI document with the texts of the API reference: an introduction, and the code samples of each operation.
 *
 * They are not in the document of the client package, whose size they would double.
 */
import type { OpenApi } from "effect/http-api"
import * as Errors from "../../api/Errors.ts"
import { openApiDocument } from "../../api/OpenApiDocument.ts"
import { planLimits } from "../../api/Plans.ts"

/** An example of an operation, in the form of the OpenAPI extension `x-codeSamples`. */
interface CodeSample {
  readonly lang: string
  readonly label: string
  readonly source: string
}

/** The rows of the plans with fixed limits (SPEC §8). */
const planRows = Object.entries(planLimits).map(([plan, { perDay, perMinute }]) =>
  `| ${plan} | ${perMinute.toLocaleString("en")} | ${perDay.toLocaleString("en")} |`
).join("\n")

/** The rows of the errors, each with the message of its example. */
const errorRows = Errors.examples
  .map(({ code, message, status }) => `| ${status} \`${code}\` | ${message} |`)
  .join("\n")

/** The introduction, in CommonMark. */
const introduction = `${openApiDocument.info.description}

## Authentication

Each request carries an API key as a bearer token: \`Authorization: Bearer psk_…\`. The operator of the service
issues keys. A missing key is 401 \`missing_api_key\`. A wrong, expired or revoked key is 401 \`invalid_api_key\`.

## Rate limits

Each plan has a limit a minute and a limit a day. Every response has \`X-RateLimit-Limit\`,
\`X-RateLimit-Remaining\` and \`X-RateLimit-Reset\` of the window that limits you most.

| plan | a minute | a day |
|---|---|---|
${planRows}
| enterprise | set for each key | set for each key |

A request over a limit is 429 \`rate_limit_exceeded\`. Wait for the seconds in \`Retry-After\`. A key that keeps
sending is banned for a minute, and each further ban lasts twice as long, up to an hour: 429 \`api_key_banned\`.

## Errors

Every error has a body of this form:

\`\`\`json
${JSON.stringify(Errors.examples[0], null, 2)}
\`\`\`

Branch on \`code\`, because \`message\` can change. Retry 429 after the seconds in \`Retry-After\`. Retry 408, 500 and
503 with a growing pause, and not before \`Retry-After\` if there is one. Retry a POST after 408, 500 or 503 only with
an \`Idempotency-Key\`, because the pet may have been created. Do not retry other errors unchanged.

| \`status\` and \`code\` | \`message\`, for example |
|---|---|
${errorRows}

## Pagination

A list has one page, by ascending id. The \`Link\` header with \`rel="next"\` has the URL of the next page. The last
page has none.

## Idempotency

Send an \`Idempotency-Key\` with each create. A retry with the same key and body within 24 hours returns the first
response and creates no second pet. The same key with another body is 422 \`idempotency_key_reused\`.

## 64-bit integers

\`id\` and \`categoryId\` are JSON numbers up to 9223372036854775807. JavaScript's \`JSON.parse\`, jq before version
1.7, and clients that generators make with the type \`number\` round integers beyond 2^53. This page shows the text
of responses as it arrived.
`

/** The examples by operation. They read `PETSTORE_URL`, the address without `/v1`, and `PETSTORE_API_KEY`. */
const codeSamples: Readonly<Record<string, ReadonlyArray<CodeSample>>> = {
  listPets: [
    {
      lang: "Shell",
      label: "curl",
      source: `curl "$PETSTORE_URL/v1/pets?status=available&limit=2" -H "Authorization: Bearer $PETSTORE_API_KEY"`
    },
    {
      lang: "JavaScript",
      label: "JavaScript",
      source: `const { PETSTORE_API_KEY, PETSTORE_URL } = process.env

const response = await fetch(\`\${PETSTORE_URL}/v1/pets?status=available&limit=2\`, {
  headers: { authorization: \`Bearer \${PETSTORE_API_KEY}\` }
})
if (!response.ok) throw new Error(await response.text())

// Without the second argument, JSON.parse rounds ids beyond 2^53.
const pets = JSON.parse(await response.text(), (name, value, { source }) =>
  name === "id" || name === "categoryId" ? BigInt(source) : value)
for (const { id, name } of pets) console.log(id, name)`
    },
    {
      lang: "Python",
      label: "Python",
      source: `import json, os, urllib.request

request = urllib.request.Request(
    os.environ["PETSTORE_URL"] + "/v1/pets?status=available&limit=2",
    headers={"Authorization": "Bearer " + os.environ["PETSTORE_API_KEY"]},
)
with urllib.request.urlopen(request) as response:
    for pet in json.load(response):  # Python's integers are exact.
        print(pet["id"], pet["name"])`
    },
    {
      lang: "TypeScript",
      label: "Effect client",
      source: `import { Console, Effect } from "effect"
import { PetstoreClient } from "petstore-client/client"

const program = Effect.gen(function*() {
  const petstore = yield* PetstoreClient
  const { pets } = yield* petstore.list({ status: "available", limit: 2 })
  for (const { id, name } of pets) yield* Console.log(id, name)
})

// Reads PETSTORE_URL and PETSTORE_API_KEY.
await Effect.runPromise(Effect.provide(program, PetstoreClient.layerConfig()))`
    }
  ],
  createPet: [
    {
      lang: "Shell",
      label: "curl",
      source: `curl -i "$PETSTORE_URL/v1/pets" -H "Authorization: Bearer $PETSTORE_API_KEY" \\
  -H 'Content-Type: application/json' -H 'Idempotency-Key: order-17' \\
  -d '{"name":"Rex","categoryId":9223372036854775807,"status":"available"}'`
    },
    {
      lang: "JavaScript",
      label: "JavaScript",
      source: `const { PETSTORE_API_KEY, PETSTORE_URL } = process.env

const response = await fetch(\`\${PETSTORE_URL}/v1/pets\`, {
  method: "POST",
  headers: {
    authorization: \`Bearer \${PETSTORE_API_KEY}\`,
    "content-type": "application/json",
    "idempotency-key": crypto.randomUUID()
  },
  // JSON.rawJSON writes an integer that a JavaScript number cannot represent. Small ones need no call.
  body: JSON.stringify({ name: "Rex", categoryId: JSON.rawJSON("9223372036854775807"), status: "available" })
})
if (response.status !== 201) throw new Error(await response.text())
console.log(response.headers.get("location"))`
    },
    {
      lang: "Python",
      label: "Python",
      source: `import json, os, urllib.request, uuid

request = urllib.request.Request(
    os.environ["PETSTORE_URL"] + "/v1/pets",
    data=json.dumps({"name": "Rex", "categoryId": 9223372036854775807, "status": "available"}).encode(),
    headers={
        "Authorization": "Bearer " + os.environ["PETSTORE_API_KEY"],
        "Content-Type": "application/json",
        "Idempotency-Key": str(uuid.uuid4()),
    },
)
with urllib.request.urlopen(request) as response:
    print(json.load(response)["id"])`
    },
    {
      lang: "TypeScript",
      label: "Effect client",
      source: `import { Console, Effect } from "effect"
import { PetstoreClient } from "petstore-client/client"

const program = Effect.gen(function*() {
  const petstore = yield* PetstoreClient
  // The client adds an Idempotency-Key and retries with it.
  const rex = yield* petstore.create({ name: "Rex", categoryId: 9223372036854775807n, status: "available" })
  yield* Console.log(rex.id)
})

await Effect.runPromise(Effect.provide(program, PetstoreClient.layerConfig()))`
    }
  ],
  getPet: [
    {
      lang: "Shell",
      label: "curl",
      source: `curl -i "$PETSTORE_URL/v1/pets/1" -H "Authorization: Bearer $PETSTORE_API_KEY"`
    },
    {
      lang: "JavaScript",
      label: "JavaScript",
      source: `const { PETSTORE_API_KEY, PETSTORE_URL } = process.env

const response = await fetch(\`\${PETSTORE_URL}/v1/pets/1\`, {
  headers: { authorization: \`Bearer \${PETSTORE_API_KEY}\` }
})
if (response.status === 404) console.log("There is no such pet.")
else if (!response.ok) throw new Error(await response.text())
else console.log(await response.text())`
    },
    {
      lang: "Python",
      label: "Python",
      source: `import json, os, urllib.error, urllib.request

request = urllib.request.Request(
    os.environ["PETSTORE_URL"] + "/v1/pets/1",
    headers={"Authorization": "Bearer " + os.environ["PETSTORE_API_KEY"]},
)
try:
    with urllib.request.urlopen(request) as response:
        print(json.load(response)["name"])
except urllib.error.HTTPError as error:
    if error.code != 404:
        raise
    print("There is no such pet.")`
    },
    {
      lang: "TypeScript",
      label: "Effect client",
      source: `import { Console, Effect } from "effect"
import { PetstoreClient } from "petstore-client/client"

const program = Effect.gen(function*() {
  const petstore = yield* PetstoreClient
  const pet = yield* petstore.get(1n)
  yield* Console.log(pet.name)
}).pipe(Effect.catchTag("NotFound", () => Console.log("There is no such pet.")))

await Effect.runPromise(Effect.provide(program, PetstoreClient.layerConfig()))`
    }
  ]
}

const addSamples = (operation: OpenApi.OpenAPISpecOperation) => ({
  ...operation,
  "x-codeSamples": codeSamples[operation.operationId]
})

const addSamplesOfPath = ({ get, post, ...item }: OpenApi.OpenAPISpecPathItem): OpenApi.OpenAPISpecPathItem => ({
  ...item,
  ...get && { get: addSamples(get) },
  ...post && { post: addSamples(post) }
})

/** The OpenAPI document that the service returns at `/openapi.json` and shows at `/docs`. */
export const apiReference: OpenApi.OpenAPISpec = {
  ...openApiDocument,
  info: { ...openApiDocument.info, description: introduction },
  paths: Object.fromEntries(Object.entries(openApiDocument.paths).map(([path, item]) => [path, addSamplesOfPath(item)]))
}
