/** The body of a request as one value. A reader may ask before or after the body settles, so it misses no event. */
import { Predicate } from "effect"

export type SettledBody =
  | { readonly _tag: "Whole"; readonly bytes: Uint8Array }
  | { readonly _tag: "Failed"; readonly fault: Error }

export type BodyState = { readonly _tag: "Growing" } | SettledBody

export interface BodySource {
  /**
   * Calls `reader` once, with the whole body or its fault: at once if the body has settled, or else after it settles.
   * Never calls it if the connection closes first. A request has one reader. If `reader` throws, the connection ends.
   */
  whenRead(reader: (body: SettledBody) => void): void
}

export const isBodySource = (source: unknown): source is BodySource => Predicate.hasProperty(source, "whenRead")
