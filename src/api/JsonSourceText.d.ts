/** Types of ECMAScript's "JSON.parse source text access", which TypeScript does not declare yet. */
interface JSON {
  parse(text: string, reviver: (key: string, value: unknown, context: { readonly source?: string }) => unknown): unknown
  rawJSON(text: string): unknown
}
