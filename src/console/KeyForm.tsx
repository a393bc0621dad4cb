import { DateTime, Effect, Record, Schema } from "effect"
import { useState } from "preact/hooks"
import { type ApiKey, type IssuedKey, KeyChange, NewKey } from "../api/KeySchemas.ts"
import { Plan, planLimits } from "../api/Plans.ts"
import { describeChanges } from "./Changes.tsx"
import { FormDialog } from "./Dialog.tsx"
import { formatLimits, textsOf } from "./Parts.tsx"
import { type Failure, useSession } from "./Session.ts"

/**
 * A dialog that changes a key. If the key has changed since the operator saw it, shows the changes and saves nothing.
 */
export function KeyDialog<A>({ apiKey, call, onConflict, ...dialog }:
  & Omit<Parameters<typeof FormDialog<A>>[0], "call">
  & {
    readonly apiKey: ApiKey
    call(form: FormData, seen: ApiKey): Effect.Effect<A, Failure>
    onConflict?(form: FormData, seen: ApiKey, current: ApiKey): void
  })
{
  const { client } = useSession()
  const [seen, setSeen] = useState(apiKey)
  const explain = (form: FormData) =>
    Effect.flatMap(client.get(seen.id), (current): Effect.Effect<never, Failure> => {
      setSeen(current)
      onConflict?.(form, seen, current)
      const message = `Another change came first, so nothing was saved: ${describeChanges(seen, current)}. ` +
        `${onConflict ? "Your entries are kept. " : ""}Choose “${dialog.action}” again to change the current version.`
      return Effect.fail({ _tag: "PreconditionFailed", message })
    })
  const callOrExplain = (form: FormData) => Effect.catchTag(call(form, seen), "PreconditionFailed", () => explain(form))
  return <FormDialog {...dialog} call={callOrExplain} />
}

/** The values of the form's inputs. `expiresAt` is in UTC, such as `2030-12-31T00:00`, or empty for never. */
type FormTexts = Readonly<Record<"expiresAt" | "name" | "perDay" | "perMinute" | "plan", string>>

const textsOfKey = ({ expiresAt, limits, name, plan }: ApiKey): FormTexts => ({
  name,
  plan,
  perMinute: String(limits.perMinute),
  perDay: String(limits.perDay),
  expiresAt: expiresAt === null ? "" : DateTime.formatIso(expiresAt).slice(0, 16)
})

const emptyTexts: FormTexts = { name: "", plan: "free", perMinute: "", perDay: "", expiresAt: "" }

const changedFields = (form: FormData, before: FormTexts): Readonly<Record<string, unknown>> => {
  const { expiresAt = "", name = "", perDay = "", perMinute = "", plan = "" } = textsOf(form)
  const hasOwnLimits = plan === "enterprise" &&
    (plan !== before.plan || perMinute !== before.perMinute || perDay !== before.perDay)
  return {
    ...name !== before.name.trim() && { name },
    ...plan !== before.plan && { plan },
    ...hasOwnLimits && { limits: { perMinute: Number(perMinute), perDay: Number(perDay) } },
    ...expiresAt !== before.expiresAt && { expiresAt: expiresAt === "" ? null : `${expiresAt}Z` }
  }
}

const describeLimits = (plan: Plan): string => plan === "enterprise" ? "own limits" : formatLimits(planLimits[plan])

const limitFields = [["Limit per minute", "perMinute"], ["Limit per day", "perDay"]] as const

const KeyFields = ({ texts }: { readonly texts: FormTexts }) => {
  const [plan, setPlan] = useState(texts.plan)
  return (
    <>
      <label class="field">
        <span>Name</span>
        <input name="name" dir="auto" required maxLength={255} autocomplete="off" defaultValue={texts.name} />
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
              <input type="number" name={name} min={1} required defaultValue={texts[name]} />
            </label>
          ))}
        </div>
      )}
      <label class="field">
        <span>Expires (UTC), or empty for never</span>
        <input type="datetime-local" name="expiresAt" defaultValue={texts.expiresAt} />
      </label>
    </>
  )
}

export const IssueDialog = ({ onClose, onIssued }: { onIssued(issued: IssuedKey): void; onClose(): void }) => {
  const { client } = useSession()
  // One idempotency key per dialog: if a response was lost, a second attempt fails and names the issued key.
  const [idempotencyKey] = useState(() => crypto.getRandomValues(new Uint32Array(4)).join("-"))
  const issue = (form: FormData) =>
    Effect.flatMap(
      Schema.decodeUnknownEffect(NewKey)({ plan: "free", ...changedFields(form, emptyTexts) }),
      (key) => client.issue(key, { idempotencyKey })
    )
  return (
    <FormDialog title="Issue key" action="Issue key" call={issue} onDone={onIssued} onClose={onClose}>
      <KeyFields texts={emptyTexts} />
    </FormDialog>
  )
}

/** After a conflict, keeps the inputs that the operator edited and updates the others. */
export const ChangeDialog = ({ apiKey, onChanged, onClose }: {
  readonly apiKey: ApiKey
  onChanged(changed: ApiKey): void
  onClose(): void
}) => {
  const { client } = useSession()
  const [texts, setTexts] = useState(() => textsOfKey(apiKey))
  return (
    <KeyDialog
      apiKey={apiKey}
      title="Change key"
      action="Save"
      call={(form, seen) =>
        Effect.flatMap(
          Schema.decodeEffect(KeyChange)(changedFields(form, textsOfKey(seen))),
          (change) => client.update(seen.id, change, { version: seen.version })
        )}
      onConflict={(form, seen, current) => {
        const [entered, before, now] = [Object.fromEntries(form), textsOfKey(seen), textsOfKey(current)]
        setTexts(Record.map(now, (text, name) => {
          const value = entered[name]
          return typeof value === "string" && value !== before[name] ? value : text
        }))
      }}
      onDone={onChanged}
      onClose={onClose}
    >
      <KeyFields key={texts} texts={texts} />
    </KeyDialog>
  )
}
