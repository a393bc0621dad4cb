/** The dialogs that issue and change a key, with their form. The contract's schemas check the form. */
import { DateTime, Effect, Schema } from "effect"
import { useState } from "preact/hooks"
import { type ApiKey, type IssuedKey, KeyChange, NewKey } from "../api/Keys.ts"
import { Plan, planLimits } from "../api/Plans.ts"
import { FormDialog } from "./Dialog.tsx"
import { formatNumber, textsOf } from "./Parts.tsx"
import { type Failure, useSession } from "./Session.ts"

/** Returns the expiry of a key in UTC, to the minute, as `datetime-local` has it: `2030-12-31T00:00`. */
const expiryOf = (key: ApiKey | undefined): string =>
  key === undefined || key.expiresAt === null ? "" : DateTime.formatIso(key.expiresAt).slice(0, 16)

/** Returns the request body of a form. The expiry is absent if it is that of `before`, whose seconds the form lacks. */
const bodyOf = (form: FormData, before?: ApiKey): unknown => {
  const { expiresAt = "", name, perDay, perMinute, plan } = textsOf(form)
  return {
    name,
    plan,
    ...plan === "enterprise" && { limits: { perMinute: Number(perMinute), perDay: Number(perDay) } },
    ...expiresAt !== expiryOf(before) && { expiresAt: expiresAt === "" ? null : `${expiresAt}Z` }
  }
}

const describeLimits = (plan: Plan): string =>
  plan === "enterprise"
    ? "own limits"
    : `${formatNumber(planLimits[plan].perMinute)} a minute, ${formatNumber(planLimits[plan].perDay)} a day`

const limitFields = [["Limit per minute", "perMinute"], ["Limit per day", "perDay"]] as const

const KeyFields = ({ apiKey }: { readonly apiKey?: ApiKey }) => {
  const [plan, setPlan] = useState<string>(apiKey?.plan ?? "free")
  return (
    <>
      <label class="field">
        <span>Name</span>
        <input
          name="name"
          dir="auto"
          required
          maxLength={255}
          pattern=".*\S.*"
          title="A name that can be read"
          autocomplete="off"
          defaultValue={apiKey?.name ?? ""}
        />
      </label>
      <label class="field">
        <span>Plan</span>
        <select name="plan" value={plan} onChange={({ currentTarget }) => setPlan(currentTarget.value)}>
          {Plan.literals.map((each) => <option value={each}>{`${each}: ${describeLimits(each)}`}</option>)}
        </select>
      </label>
      {plan === "enterprise" && (
        <div class="columns">
          {limitFields.map(([label, name]) => (
            <label key={name} class="field">
              <span>{label}</span>
              <input type="number" name={name} min={1} required defaultValue={apiKey?.limits[name] ?? ""} />
            </label>
          ))}
        </div>
      )}
      <label class="field">
        <span>Expires (UTC), or empty for never</span>
        <input type="datetime-local" name="expiresAt" defaultValue={expiryOf(apiKey)} />
      </label>
    </>
  )
}

export const IssueDialog = ({ onClose, onIssued }: { onIssued(issued: IssuedKey): void; onClose(): void }) => {
  const { client } = useSession()
  // After a lost response, a second request with the same idempotency key names the key that the first has issued.
  const [idempotencyKey] = useState(() => crypto.getRandomValues(new Uint32Array(4)).join("-"))
  const issue = (form: FormData) =>
    Effect.flatMap(Schema.decodeUnknownEffect(NewKey)(bodyOf(form)), (key) => client.issue(key, { idempotencyKey }))
  return (
    <FormDialog title="Issue key" action="Issue key" call={issue} onDone={onIssued} onClose={onClose}>
      <KeyFields />
    </FormDialog>
  )
}

/** Changes a key. A change that another operator made meanwhile is not overwritten. */
export const ChangeDialog = ({ apiKey, onChanged, onClose }: {
  readonly apiKey: ApiKey
  onChanged(changed: ApiKey): void
  onClose(): void
}) => {
  const { client } = useSession()
  const [before, setBefore] = useState(apiKey)
  /** Shows the key as it is now in the form. The operator decides what to change in it. */
  const showCurrent = Effect.flatMap(client.get(before.id), (current): Effect.Effect<never, Failure> => {
    setBefore(current)
    const message = "Another change came first, so nothing was saved. The form shows the key as it is now."
    return Effect.fail({ _tag: "PreconditionFailed", message })
  })
  const change = (form: FormData): Effect.Effect<ApiKey, Failure> =>
    Schema.decodeUnknownEffect(KeyChange)(bodyOf(form, before)).pipe(
      Effect.flatMap((fields) => client.update(before.id, fields, { version: before.version })),
      Effect.catchTag("PreconditionFailed", () => showCurrent)
    )
  return (
    <FormDialog title="Change key" action="Save" call={change} onDone={onChanged} onClose={onClose}>
      <KeyFields key={before.version} apiKey={before} />
    </FormDialog>
  )
}
