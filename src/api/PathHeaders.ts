import { Context } from "effect"

/** An annotation of an endpoint: headers that every response to a request for its path carries, whatever its status. */
export class PathHeaders extends Context.Service<PathHeaders, Readonly<Record<string, string>>>()(
  "petstore/api/PathHeaders"
) {}
