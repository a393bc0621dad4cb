/** The body of a request as one value. Its reader gets it whenever it asks, so no event of the body can be missed. */
import { Predicate } from "effect"

export type SettledBody =
  | { readonly _tag: "Whole"; readonly bytes: Uint8Array }
  | { readonly _tag: "Failed"; readonly fault: Error }

export type BodyState = { readonly _tag: "Growing" } | SettledBody

export interface BodySource {
  /**
   * Calls `reader` once, with the whole body or its fault: at once if the body has settled, or else when it settles. A
   * request has one reader. If `reader` throws, the connection ends.
   */
  whenRead(reader: (body: SettledBody) => void): void
}

export const isBodySource = (source: unknown): source is BodySource => Predicate.hasProperty(source, "whenRead")
