/** Declares the plans and their limits (SPEC §8, Rate limits by plan). */
import { Schema } from "effect"

/** The maximum numbers of requests in a window of 60 seconds and in one of 86,400 seconds. */
export const Limits = Schema.Struct({
  perMinute: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 2_147_483_647 })),
  perDay: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 2_147_483_647 }))
}).annotate({ identifier: "Limits" })
export interface Limits extends Schema.Schema.Type<typeof Limits> {}

/** The plan of an API key. On plan enterprise each key has its own limits. */
export const Plan = Schema.Literals(["free", "pro", "business", "enterprise"]).annotate({
  identifier: "Plan",
  description: "The plan, which determines the limits.",
  message: "Expected free, pro, business or enterprise"
})
export type Plan = typeof Plan.Type

/** The limits of each plan except enterprise (SPEC §8, Rate limits by plan). */
export const planLimits: Readonly<Record<Exclude<Plan, "enterprise">, Limits>> = {
  free: { perMinute: 60, perDay: 1_000 },
  pro: { perMinute: 300, perDay: 10_000 },
  business: { perMinute: 1_000, perDay: 100_000 }
}
