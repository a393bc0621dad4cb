/** The page `/docs`: OpenAPI Explorer (docs/decisions.md) with the OpenAPI document, in one file. */
import { Predicate, Record as Records } from "effect"
import type { OpenApi } from "effect/http-api"
import { placeholders, samplesOf } from "./CodeSamples.ts"

// The explorer's own colors have too little contrast (WCAG 1.4.3), and no dark version.
const style = `
  body { margin: 0 }
  openapi-explorer {
    color-scheme: light dark;
    --font-regular: system-ui, sans-serif; --font-mono: ui-monospace, monospace;
    --font-size-regular: 16px; --font-size-small: 14px; --font-size-mono: 14px;
    --bg: #fff; --bg2: #f6f7f8; --bg3: #eceef0; --light-bg: #e4e6e9; --fg: #1f2328; --fg2: #3a4048; --fg3: #474e57;
    --light-fg: #565e68; --placeholder-color: #565e68; --border-color: #c8cdd3; --light-border-color: #dfe2e6;
    --input-bg: #fff; --hover-color: #f0f2f4; --blue: #0757a8; --green: #12652b; --red: #b01c2b; --orange: #8a4200;
    --yellow: #705200; --purple: #5a32a3; --gray: #465865; --pink: #a3195b; --light-blue: #eef5fc;
    --light-green: #eef8f1; --light-red: #fdf0f1; --light-orange: #fdf3ea; --light-yellow: #fdf8e7;
    --light-purple: #f5f1fd; --light-gray: #f1f3f5; --nav-bg-color: #f6f7f8; --nav-text-color: #3a4048;
    --nav-hover-bg-color: #e4e6e9; --nav-hover-text-color: #1f2328; --primary-color: #0757a8;
    --secondary-color: #0757a8; --primary-btn-text-color: #fff; --header-bg: #f6f7f8; --header-fg: #1f2328;
    --code-fg: #1f2328; --inline-code-fg: #8a1c1c; --code-property-color: #8a0052; --code-keyword-color: #00547a;
    --code-operator-color: #6a4517;
  }
  @media (prefers-color-scheme: dark) {
    openapi-explorer {
      --bg: #16181d; --bg2: #1e2128; --bg3: #272b33; --light-bg: #30353f; --fg: #e6e8eb; --fg2: #d0d4da;
      --fg3: #bfc5cd; --light-fg: #aab2bc; --placeholder-color: #aab2bc; --border-color: #474e59;
      --light-border-color: #363c46; --input-bg: #1e2128; --hover-color: #272b33; --blue: #7cc0ff;
      --green: #6fd08c; --red: #ff9aa2; --orange: #ffb27a; --yellow: #f0cc5b; --purple: #c9adff; --gray: #b9c4cd;
      --pink: #ff9ac4; --light-blue: #1b2a3a; --light-green: #1a2c20; --light-red: #36201f;
      --light-orange: #33261a; --light-yellow: #322c17; --light-purple: #2a2338; --light-gray: #262b30;
      --nav-bg-color: #1e2128; --nav-text-color: #d0d4da; --nav-hover-bg-color: #30353f;
      --nav-hover-text-color: #fff; --primary-color: #7cc0ff; --secondary-color: #7cc0ff;
      --primary-btn-text-color: #10131a; --header-bg: #1e2128; --header-fg: #e6e8eb; --code-fg: #e6e8eb;
      --inline-code-fg: #ffb3a7; --code-property-color: #ff9ac4; --code-keyword-color: #7fd0ff;
      --code-operator-color: #e6b980;
    }
  }
  openapi-explorer::part(anchor) { text-decoration: underline }
`

/**
 * The script of the page, in three parts:
 * 1. JSON parsers that do not round. The explorer parses responses and request bodies, and without this part, integers
 *    beyond 2^53 can be rounded.
 * 2. A correction of the explorer's method `recomputeFetchOptions`. Without this part, the explorer sends a rounded
 *    body, and shows a curl command that a `'` in the body breaks.
 * 3. The OpenAPI document, with the page's own address in place of the placeholders.
 */
const script = String.raw`
  const { parse } = JSON
  const keepDigits = (_, value, { source }) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(source) ? JSON.rawJSON(source) : value
  JSON.parse = (text, reviver) => parse(text, reviver ?? (/\d{16}/.test(text) ? keepDigits : undefined))
  Response.prototype.json = async function() {
    return JSON.parse(await this.text())
  }

  const { prototype } = customElements.get("api-request")
  const { recomputeFetchOptions } = prototype
  prototype.recomputeFetchOptions = function() {
    const made = recomputeFetchOptions.call(this)
    const body = this.querySelector(".request-body-param-user-input")?.value
    if (body) {
      made.fetchOptions.body = body
      made.curlParts.data = " \\\n  -d '" + body.replaceAll("'", "'\\''") + "'"
    }
    return made
  }

  const { host, origin, protocol } = location
  const connection = (protocol === "https:" ? "HTTPSConnection" : "HTTPConnection") + '(\\"' + host + '\\")'
  const text = document.getElementById("openapi").textContent
    .replaceAll("${placeholders.origin}", origin).replaceAll("${placeholders.connection}", connection)
  document.querySelector("openapi-explorer").loadSpec(parse(text))
`

const methods = ["get", "post", "patch", "delete"] as const

const completeParameter = (parameter: OpenApi.OpenAPISpecParameter) => {
  const { examples, ...rest }: OpenApi.OpenAPISpecParameter & { readonly examples?: unknown } = parameter
  // Pass the value as `example`, because the explorer shows `examples` as `[object Object]`.
  const example: unknown = Predicate.hasProperty(examples, "example") ? examples.example : undefined
  return { ...rest, ...Predicate.hasProperty(example, "value") && { example: example.value } }
}

/**
 * Adapts a document to the explorer: adds code samples, gives the examples of parameters in the form that the explorer
 * shows, keeps only the first server, and turns all numbers but safe integers into strings, because the explorer would
 * round large integers.
 */
const adapt = (document: OpenApi.OpenAPISpec): unknown => {
  const paths = Records.map(document.paths, (item, path) =>
    Object.fromEntries(methods.flatMap((method) => {
      const operation = item[method]
      return operation === undefined ? [] : [[method, {
        ...operation,
        parameters: operation.parameters.map(completeParameter),
        "x-code-samples": samplesOf(document, method, path, operation)
      }]]
    })))
  const text = JSON.stringify({ ...document, servers: document.servers?.slice(0, 1), paths })
  return JSON.parse(
    text,
    (_, value: unknown, { source = "" }) => typeof value === "number" && !Number.isSafeInteger(value) ? source : value
  )
}

/** Renders the page. `explorer` is the script of OpenAPI Explorer. */
export const render = (document: OpenApi.OpenAPISpec, explorer: string): string =>
  `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>${document.info.title}</title>
<meta name="description" content="${document.info.description?.split("\n", 1)[0] ?? ""}">
<style>${style}</style>
</head>
<body>
<openapi-explorer collapse="false" hide-components="true" hide-search="true" hide-server-selection="true">
</openapi-explorer>
<script id="openapi" type="application/json">${JSON.stringify(adapt(document)).replaceAll("<", "\\u003c")}</script>
<script>${explorer}</script>
<script type="module">${script}</script>
</body>
</html>
`
