/** The plans and their limits (SPEC §8, Rate limits by plan). */
import { Schema } from "effect"

/** How many requests a caller may make, in any 60 seconds and any 86,400 seconds from its first. */
export const Limits = Schema.Struct({
  perMinute: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 2_147_483_647 })),
  perDay: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 2_147_483_647 }))
}).annotate({ identifier: "Limits" })
export interface Limits extends Schema.Schema.Type<typeof Limits> {}

/** Enterprise is the plan whose limits are each key's own. */
export const Plan = Schema.Literals(["free", "pro", "business", "enterprise"]).annotate({
  identifier: "Plan",
  message: "Expected free, pro, business or enterprise"
})
export type Plan = typeof Plan.Type

export const planLimits: Readonly<Record<Exclude<Plan, "enterprise">, Limits>> = {
  free: { perMinute: 60, perDay: 1_000 },
  pro: { perMinute: 300, perDay: 10_000 },
  business: { perMinute: 1_000, perDay: 100_000 }
}
