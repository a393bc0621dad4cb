import { Schema } from "effect"
import { oneOf } from "./TextSchemas.ts"

/** How many requests an API key may send (SPEC §8). */
export const Limits = Schema.Struct({
  /** Requests in a window of 60 seconds. */
  perMinute: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 2_147_483_647 })),
  /** Requests in a window of 86,400 seconds. */
  perDay: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 2_147_483_647 }))
}).annotate({ identifier: "Limits" })
export interface Limits extends Schema.Schema.Type<typeof Limits> {}

/** The plan of a key, which determines its limits (SPEC §8). An enterprise key has limits of its own. */
export const Plan = oneOf("free", "pro", "business", "enterprise").annotate({
  identifier: "Plan",
  description: "The plan, which determines the limits."
})
export type Plan = typeof Plan.Type

/** The limits of each plan (SPEC §8). On plan enterprise, each key has individual limits. */
export const planLimits: Readonly<Record<Exclude<Plan, "enterprise">, Limits>> = {
  free: { perMinute: 60, perDay: 1_000 },
  pro: { perMinute: 300, perDay: 10_000 },
  business: { perMinute: 1_000, perDay: 100_000 }
}
