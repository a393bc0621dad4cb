/** One key: its properties, its usage, its audit log, and the actions on it. */
import { Effect } from "effect"
import { useState } from "preact/hooks"
import type { ApiKeyDetails } from "../api/Keys.ts"
import { AuditTable } from "./AuditTable.tsx"
import { useAction, useQuery } from "./Calls.ts"
import { ChangeDialog } from "./ChangeDialog.tsx"
import { formatNumber, formatRelative, stateOf } from "./Format.ts"
import { Alert, CopyButton, StateBadge, UsageBar, When } from "./Parts.tsx"
import { RevokeDialog } from "./RevokeDialog.tsx"
import { RotateDialog } from "./RotateDialog.tsx"
import { hrefOf } from "./Route.ts"
import { useSession } from "./Session.ts"
import { UsageCharts } from "./UsageCharts.tsx"

/** Milliseconds between two reads of a key and its usage. */
const refreshMs = 3_000

const Properties = ({ apiKey }: { readonly apiKey: ApiKeyDetails }) => (
  <dl class="card properties">
    <div>
      <dt>Plan</dt>
      <dd>{apiKey.plan}</dd>
    </div>
    <div>
      <dt>Limits</dt>
      <dd>{formatNumber(apiKey.limits.perMinute)} a minute, {formatNumber(apiKey.limits.perDay)} a day</dd>
    </div>
    <div>
      <dt>Secret</dt>
      <dd>
        <code>psk_…{apiKey.hint ?? ""}</code>
      </dd>
    </div>
    <div>
      <dt>Last used</dt>
      <dd>{apiKey.lastUsedAt === null ? "never" : <When at={apiKey.lastUsedAt} precision="minute" />}</dd>
    </div>
    <div>
      <dt>Created</dt>
      <dd>
        <When at={apiKey.createdAt} />
      </dd>
    </div>
    <div>
      <dt>Expires</dt>
      <dd>{apiKey.expiresAt === null ? "never" : <When at={apiKey.expiresAt} />}</dd>
    </div>
    {apiKey.revokedAt !== null && (
      <div>
        <dt>Revoked</dt>
        <dd>
          <When at={apiKey.revokedAt} />
        </dd>
      </div>
    )}
    <div>
      <dt>Version</dt>
      <dd>{apiKey.version}</dd>
    </div>
  </dl>
)

const Windows = ({ usage }: Pick<ApiKeyDetails, "usage">) => (
  <div class="card windows">
    {([["Minute", usage.minute], ["Day", usage.day]] as const).map(([name, window]) => (
      <div key={name}>
        <div class="row">
          <span>{name}</span>
          <span>
            <strong>{formatNumber(window.limit - window.remaining)}</strong>{" "}
            <span class="muted">of {formatNumber(window.limit)}</span>
          </span>
        </div>
        <UsageBar label={`Used of the ${name.toLowerCase()}`} {...window} />
        <p class="hint">
          {window.remaining === window.limit ? "not used" : `resets ${formatRelative(window.resetAt)}`}
        </p>
      </div>
    ))}
  </div>
)

export const KeyView = ({ id }: { readonly id: string }) => {
  const { announce, client } = useSession()
  const [dialog, setDialog] = useState<"change" | "rotate" | "revoke">()
  const [revision, setRevision] = useState(0)
  const unban = useAction()
  const query = useQuery(
    Effect.all({ apiKey: client.find(id), history: client.usage(id) }, { concurrency: 2 }),
    id,
    refreshMs
  )
  const onChanged = (): void => {
    query.reload()
    setRevision((count) => count + 1)
  }
  const back = (
    <p class="back">
      <a href={hrefOf({ view: "keys", filter: {} })}>Keys</a>
    </p>
  )
  if (query.value === undefined) {
    return (
      <>
        {back}
        <h1>
          <code>{id}</code>
        </h1>
        {query.failure === undefined ? <p class="muted" role="status">Loading…</p> : <Alert>{query.failure}</Alert>}
      </>
    )
  }
  const { apiKey, history } = query.value
  const state = stateOf(apiKey)
  const dialogOf = { apiKey, onChanged, onClose: () => setDialog(undefined) }
  const isOver = state === "revoked"
  return (
    <>
      {back}
      <div class="heading">
        <div>
          <h1>
            {apiKey.name} <StateBadge state={state} />
          </h1>
          <p class="id">
            <code>{apiKey.id}</code>
            <CopyButton label="the id" text={apiKey.id} />
          </p>
        </div>
        {!isOver && (
          <div class="actions">
            <button type="button" onClick={() => setDialog("change")}>Change</button>
            <button type="button" onClick={() => setDialog("rotate")} disabled={state === "expired"}>Rotate</button>
            <button type="button" class="danger" onClick={() => setDialog("revoke")}>Revoke</button>
          </div>
        )}
      </div>
      {query.failure !== undefined && <Alert>{query.failure}</Alert>}
      {state === "banned" && apiKey.ban !== null && (
        <div class="notice">
          <p>
            <strong>Banned.</strong> The key kept sending requests after 429. The ban ends{" "}
            <When at={apiKey.ban.until} />.
          </p>
          <button
            type="button"
            aria-disabled={unban.isRunning}
            onClick={() =>
              unban.run(client.unban(id), () => {
                announce(`The ban of ${apiKey.name} was lifted.`)
                onChanged()
              })}
          >
            Lift ban
          </button>
        </div>
      )}
      {unban.failure !== undefined && <Alert>{unban.failure.message}</Alert>}
      <div class="columns">
        <Windows usage={apiKey.usage} />
        <Properties apiKey={apiKey} />
      </div>
      <UsageCharts history={history} />
      <h2>Audit log</h2>
      <AuditTable keyId={id} revision={revision} />
      {dialog === "change" && <ChangeDialog {...dialogOf} />}
      {dialog === "rotate" && <RotateDialog {...dialogOf} />}
      {dialog === "revoke" && <RevokeDialog {...dialogOf} />}
    </>
  )
}
