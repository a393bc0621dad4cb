/** The fields of a key that an operator sets, and their form. */
import { DateTime, Option } from "effect"
import type { ApiKey, KeyChange, NewKey } from "../api/Keys.ts"
import { type Limits, Plan, planLimits } from "../api/Plans.ts"
import { formatNumber } from "./Format.ts"
import { oneOf } from "./Route.ts"

/** The texts of the form. `expiresAt` is in UTC, as `datetime-local` has it: `2030-12-31T00:00`. */
export interface Fields {
  readonly name: string
  readonly plan: Plan
  readonly perMinute: string
  readonly perDay: string
  readonly expiresAt: string
}

export const emptyFields: Fields = { name: "", plan: "free", perMinute: "", perDay: "", expiresAt: "" }

const inputLength = "2030-12-31T00:00".length

/** Returns the fields of a key. The form has no seconds. */
export const fieldsOf = ({ expiresAt, limits, name, plan }: ApiKey): Fields => ({
  name,
  plan,
  perMinute: String(limits.perMinute),
  perDay: String(limits.perDay),
  expiresAt: expiresAt === null ? "" : DateTime.formatIso(expiresAt).slice(0, inputLength)
})

const limitsOf = ({ perDay, perMinute, plan }: Fields): { readonly limits?: Limits } =>
  plan === "enterprise" ? { limits: { perMinute: Number(perMinute), perDay: Number(perDay) } } : {}

const expiryOf = ({ expiresAt }: Fields): DateTime.Utc | undefined =>
  expiresAt === "" ? undefined : Option.getOrUndefined(DateTime.make(`${expiresAt}Z`))

/** Returns the request body that issues a key. */
export const newKeyOf = (fields: Fields): NewKey => {
  const expiresAt = expiryOf(fields)
  return {
    name: fields.name.trim(),
    plan: fields.plan,
    ...limitsOf(fields),
    ...expiresAt !== undefined && { expiresAt }
  }
}

/** Returns the request body that has only the changed fields. */
export const changeOf = (before: Fields, after: Fields): KeyChange => {
  const isSame = (...names: ReadonlyArray<keyof Fields>): boolean => names.every((name) => before[name] === after[name])
  return {
    ...!isSame("name") && { name: after.name.trim() },
    ...!isSame("plan") && { plan: after.plan },
    ...!isSame("plan", "perMinute", "perDay") && limitsOf(after),
    ...!isSame("expiresAt") && { expiresAt: expiryOf(after) ?? null }
  }
}

const describeLimits = (plan: Plan): string =>
  plan === "enterprise"
    ? "own limits"
    : `${formatNumber(planLimits[plan].perMinute)} a minute, ${formatNumber(planLimits[plan].perDay)} a day`

const maxLimit = 2_147_483_647

export const KeyFields = ({ fields, onChange }: { readonly fields: Fields; onChange(fields: Fields): void }) => {
  const set = (change: Partial<Fields>): void => onChange({ ...fields, ...change })
  const limit = (label: string, name: "perMinute" | "perDay") => (
    <label class="field">
      <span>{label}</span>
      <input
        type="number"
        min={1}
        max={maxLimit}
        step={1}
        required
        value={fields[name]}
        onInput={({ currentTarget }) => set({ [name]: currentTarget.value })}
      />
    </label>
  )
  return (
    <>
      <label class="field">
        <span>Name</span>
        <input
          type="text"
          required
          maxLength={255}
          pattern=".*\S.*"
          title="A name that can be read"
          autocomplete="off"
          value={fields.name}
          onInput={({ currentTarget }) => set({ name: currentTarget.value })}
        />
      </label>
      <label class="field">
        <span>Plan</span>
        <select
          value={fields.plan}
          onChange={({ currentTarget }) => set({ plan: oneOf(Plan.literals, currentTarget.value) ?? fields.plan })}
        >
          {Plan.literals.map((plan) => <option value={plan}>{`${plan}: ${describeLimits(plan)}`}</option>)}
        </select>
      </label>
      {fields.plan === "enterprise" && (
        <div class="pair">
          {limit("Limit per minute", "perMinute")}
          {limit("Limit per day", "perDay")}
        </div>
      )}
      <label class="field">
        <span>Expires (UTC), or empty for never</span>
        <input
          type="datetime-local"
          value={fields.expiresAt}
          onInput={({ currentTarget }) => set({ expiresAt: currentTarget.value })}
        />
      </label>
    </>
  )
}
