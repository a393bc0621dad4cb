import { DateTime, Effect } from "effect"
import type { ComponentChildren } from "preact"
import { useLayoutEffect, useRef, useState } from "preact/hooks"
import { keyPrefix } from "../api/Brand.ts"
import { type ApiKeyDetails, isPartial, type IssuedKey, keyStateOf } from "../api/KeySchemas.ts"
import { AuditTable } from "./AuditLog.tsx"
import { SecretDialog } from "./Dialog.tsx"
import { ChangeDialog, KeyDialog } from "./KeyForm.tsx"
import { Alert, formatLimits, formatNumber, LastUse, Name, StateBadge, When } from "./Parts.tsx"
import { type Client, type Failure, useAction, useQuery, useSession } from "./Session.ts"
import { UsageChart } from "./UsageChart.tsx"

const Properties = ({ apiKey }: { readonly apiKey: ApiKeyDetails }) => {
  const properties: ReadonlyArray<readonly [name: string, value: ComponentChildren]> = [
    ["Plan", apiKey.plan],
    ["Limits", formatLimits(apiKey.limits)],
    ["Secret", <code>{keyPrefix}…{apiKey.hint}</code>],
    ["Last used", <LastUse at={apiKey.lastUsedAt} />],
    ["Created", <When at={apiKey.createdAt} />],
    apiKey.revokedAt === null
      ? ["Expires", apiKey.expiresAt === null ? "never" : <When at={apiKey.expiresAt} />]
      : ["Revoked", <When at={apiKey.revokedAt} />]
  ]
  return (
    <dl class="card properties">
      {properties.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
      {apiKey.formerSecrets.length > 0 && (
        <div class="former">
          <dt>Former secrets</dt>
          {apiKey.formerSecrets.map(({ endsAt, hint, lastUsedAt }) => (
            <dd>
              <code>{keyPrefix}…{hint}</code> stops working <When at={endsAt} />, last used <LastUse at={lastUsedAt} />
            </dd>
          ))}
        </div>
      )}
    </dl>
  )
}

const Window = ({ name, window: { limit, remaining, resetAt } }: {
  readonly name: string
  readonly window: ApiKeyDetails["usage"]["minute"]
}) => {
  const used = Math.min(limit, Math.max(0, limit - remaining))
  return (
    <div>
      <p class="row">
        {name} <span>{formatNumber(used)} of {formatNumber(limit)} used, {formatNumber(remaining)} left</span>
      </p>
      <meter aria-label={`Used this ${name.toLowerCase()}`} max={limit} high={0.8 * limit} optimum={0} value={used} />
      <p class="muted">{used === 0 ? "not used" : ["resets ", <When at={resetAt} />]}</p>
    </div>
  )
}

const gracePeriods = { "1 hour": 3_600, "1 day": 86_400, "7 days": 604_800, "30 days": 2_592_000 }

interface KeyAction extends Readonly<Record<"text" | "title", string>> {
  call(client: Client, id: string, options: { readonly version: number }): Effect.Effect<unknown, Failure>
}

const setEnabled = (enabled: boolean, title: string, text: string): KeyAction => ({
  title,
  text,
  call: (client, id, options) => client.update(id, { enabled }, options)
})
const disable = setEnabled(false, "Disable key", "requests with it get 401 within a second, until you enable it again.")
const enable = setEnabled(true, "Enable key", "its secrets work again within a second.")
const endFormer: KeyAction = {
  title: "Revoke former secrets",
  text: "the former secrets stop working within a second. The current one keeps working.",
  call: (client, id, options) => client.endFormerSecrets(id, options)
}
const revoke: KeyAction = {
  title: "Revoke key",
  text: "the key stops working within a second. This cannot be undone.",
  call: (client, id, options) => client.revoke(id, options)
}

export const KeyPage = ({ id }: { readonly id: string }) => {
  const { announce, client, mayChange } = useSession()
  const [dialog, setDialog] = useState<"change" | "rotate" | KeyAction | IssuedKey>()
  const [revision, setRevision] = useState(0)
  const unban = useAction()
  const heading = useRef<HTMLHeadingElement>(null)
  const read = Effect.all({ apiKey: client.get(id), history: client.usage(id) }, { concurrency: 2 })
  const query = useQuery(read, id, 3_000)
  const state = query.value && keyStateOf(query.value.apiKey, DateTime.nowUnsafe())
  // If an action removes its own button, which had the focus, focus the heading.
  useLayoutEffect(() => {
    if (document.activeElement === document.body) heading.current?.focus({ preventScroll: true })
  }, [state, query.value?.apiKey.formerSecrets.length])
  if (query.value === undefined || state === undefined) {
    return (
      <>
        <h1>{id}</h1>
        {query.failure === undefined ? <p role="status">Loading…</p> : <Alert>{query.failure}</Alert>}
      </>
    )
  }
  const { apiKey, history } = query.value
  const lifted = `The ban was lifted${
    isPartial(apiKey.counting) ? " only in the process that responded. Others may enforce it" : ""
  }.`
  const onClose = (): void => setDialog(undefined)
  const onChanged = (message: ComponentChildren, next?: IssuedKey): void => {
    setDialog(next)
    announce(message)
    query.reload()
    setRevision((count) => count + 1)
  }
  const onSaved = (): void => onChanged("The key was changed.")
  return (
    <>
      <div class="heading">
        <div>
          <h1 ref={heading} tabIndex={-1}>
            <bdi>{apiKey.name}</bdi> <StateBadge state={state} />
          </h1>
          <code>{apiKey.id}</code>
        </div>
        {mayChange && state !== "revoked" && (
          <div class="actions">
            <button type="button" onClick={() => setDialog("change")}>Change</button>
            <button type="button" onClick={() => setDialog("rotate")} disabled={state === "expired"}>Rotate</button>
            {apiKey.formerSecrets.length > 0 && (
              <button type="button" onClick={() => setDialog(endFormer)}>Revoke former secrets</button>
            )}
            <button type="button" onClick={() => setDialog(apiKey.enabled ? disable : enable)}>
              {apiKey.enabled ? "Disable" : "Enable"}
            </button>
            <button type="button" class="danger" onClick={() => setDialog(revoke)}>Revoke</button>
          </div>
        )}
      </div>
      {query.failure !== undefined && <Alert>{query.failure}</Alert>}
      {unban.failure !== undefined && <Alert>{unban.failure}</Alert>}
      {state === "banned" && apiKey.ban !== null && (
        <div class="notice">
          <p>
            <strong>Banned.</strong> The key kept sending requests after 429. The ban ends{" "}
            <When at={apiKey.ban.until} />.
          </p>
          {mayChange && (
            <button type="button" onClick={() => unban.run(client.unban(id), () => onChanged(lifted))}>Lift ban</button>
          )}
        </div>
      )}
      <div class="columns">
        <div class="card windows">
          <Window name="Minute" window={apiKey.usage.minute} />
          <Window name="Day" window={apiKey.usage.day} />
          {isPartial(apiKey.counting) && <p class="muted">Counted without Redis, by the process that responded</p>}
        </div>
        <Properties apiKey={apiKey} />
        <UsageChart title="Last hour" unit="a minute" intervals={history.minutes} steps={60} stepMs={60_000} />
        <UsageChart title="Last day" unit="an hour" intervals={history.hours} steps={24} stepMs={3_600_000} />
      </div>
      <h2>Audit log</h2>
      <AuditTable query={{ key: id }} revision={revision} />
      {dialog === "change" && <ChangeDialog apiKey={apiKey} onClose={onClose} onChanged={onSaved} />}
      {dialog === "rotate" && (
        <KeyDialog
          apiKey={apiKey}
          title="Rotate key"
          action="Rotate key"
          call={(form, { version }) =>
            client.rotate(id, { gracePeriod: `${Number(form.get("gracePeriod"))} seconds`, version })}
          onDone={(issued) => onChanged("The key has a new secret.", issued)}
          onClose={onClose}
        >
          <p>
            <Name of={apiKey} /> gets a new secret. Its id, plan and counts stay.
          </p>
          <label class="field">
            <span>The current secret</span>
            <select name="gracePeriod" required>
              <option value="">choose…</option>
              {Object.entries(gracePeriods).map(([text, seconds]) => <option value={seconds}>works for {text}</option>)}
              <option value={0}>stops working now</option>
            </select>
          </label>
        </KeyDialog>
      )}
      {typeof dialog === "object" && "call" in dialog && (
        <KeyDialog
          apiKey={apiKey}
          title={dialog.title}
          action={dialog.title}
          isDanger={dialog !== enable}
          call={(_, { version }) => dialog.call(client, id, { version })}
          onDone={() => onChanged(`${dialog.title}: done.`)}
          onClose={onClose}
        >
          <p>
            <Name of={apiKey} />: {dialog.text}
          </p>
        </KeyDialog>
      )}
      {typeof dialog === "object" && "key" in dialog && <SecretDialog issued={dialog} onClose={onClose} />}
    </>
  )
}
