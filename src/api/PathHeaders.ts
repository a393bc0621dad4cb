/** Declares the endpoint annotation for headers that belong to a path. */
import { Context } from "effect"

/** Headers by name. Every response to a request for the path of the annotated endpoint has them, with any status. */
export class PathHeaders extends Context.Service<PathHeaders, Readonly<Record<string, string>>>()(
  "petstore/api/PathHeaders"
) {}
