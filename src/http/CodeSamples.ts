/**
 * Code samples for `/docs`: curl, JavaScript's `fetch` and Python's `http.client` with an operation's required parts.
 */
import { Predicate } from "effect"
import type { OpenApi } from "effect/http-api"
import { name as brand } from "../api/Brand.ts"

/** The script of the page replaces these with the page's own address. The service does not know that address. */
export const placeholders = { origin: "{{origin}}", connection: "{{connection}}" }

/** The environment variable for the API key. `PetstoreClient.layerConfig` and the documentation use it too. */
const apiKeyVariable = `${brand.toUpperCase()}_API_KEY`

interface CodeSample {
  readonly lang: string
  readonly label: string
  readonly source: string
}

interface SampleRequest {
  readonly method: string
  readonly path: string
  readonly body: string | undefined
}

const inShell = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`

const curl = ({ body, method, path }: SampleRequest): string =>
  [
    `curl ${method === "GET" ? "" : `-X ${method} `}"${placeholders.origin}${path}"`,
    `-H "Authorization: Bearer $${apiKeyVariable}"`,
    ...body === undefined ? [] : [`-H "Content-Type: application/json"`, `-d ${inShell(body)}`]
  ].join(" \\\n  ")

/** A sample that runs in Node, and in the console of a browser, which asks for the key. */
const javaScript = ({ body, method, path }: SampleRequest): string => {
  const headers = [
    `Authorization: \`Bearer \${globalThis.process?.env.${apiKeyVariable} ?? prompt("API key")}\``,
    ...body === undefined ? [] : [`"Content-Type": "application/json"`]
  ]
  return [
    `fetch("${placeholders.origin}${path}", {`,
    `  method: "${method}",`,
    `  headers: {`,
    headers.map((header) => `    ${header}`).join(",\n"),
    body === undefined ? "  }" : `  },\n  body: JSON.stringify(${body})`,
    "}).then(async (response) => console.log(response.status, await response.text()))"
  ].join("\n")
}

const python = ({ body, method, path }: SampleRequest): string => {
  const headers = [
    `"Authorization": "Bearer " + os.environ["${apiKeyVariable}"]`,
    ...body === undefined ? [] : [`"Content-Type": "application/json"`]
  ]
  return [
    body === undefined ? "import http.client, os" : "import http.client, json, os",
    "",
    `connection = http.client.${placeholders.connection}`,
    `headers = {${headers.join(", ")}}`,
    body === undefined
      ? `connection.request("${method}", "${path}", headers=headers)`
      : `connection.request("${method}", "${path}", json.dumps(${body}), headers)`,
    "response = connection.getresponse()",
    "print(response.status, response.read().decode())"
  ].join("\n")
}

const isObject = Predicate.isObjectKeyword

const fieldOf = (value: unknown, name: string): unknown => isObject(value) ? Reflect.get(value, name) : undefined

/** Returns the required fields of a body's example as JSON, or all if none is required. `undefined`: no example. */
const requiredBodyOf = (document: OpenApi.OpenAPISpec, operation: OpenApi.OpenAPISpecOperation): string | undefined => {
  const content = operation.requestBody?.content["application/json"]
  const reference = String(fieldOf(content?.schema, "$ref")).split("/").at(-1) ?? ""
  const required = fieldOf(document.components.schemas[reference], "required")
  const example = fieldOf(fieldOf(fieldOf(content, "examples"), "example"), "value")
  if (!isObject(example)) return undefined
  const names = Array.isArray(required) && required.length > 0 ? required.map(String) : Object.keys(example)
  return JSON.stringify(Object.fromEntries(names.map((name) => [name, fieldOf(example, name)])))
}

export const samplesOf = (
  document: OpenApi.OpenAPISpec,
  method: string,
  path: string,
  operation: OpenApi.OpenAPISpecOperation
): ReadonlyArray<CodeSample> => {
  const filled = operation.parameters.filter(({ required }) => required).reduce(
    (url, parameter) => url.replace(`{${parameter.name}}`, String(fieldOf(parameter, "example"))),
    `${document.servers?.[0]?.url ?? ""}${path}`
  )
  const request = { method: method.toUpperCase(), path: filled, body: requiredBodyOf(document, operation) }
  return [
    { lang: "shell", label: "curl", source: curl(request) },
    { lang: "javascript", label: "JavaScript", source: javaScript(request) },
    { lang: "python", label: "Python", source: python(request) }
  ]
}
