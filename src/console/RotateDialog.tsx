/** The dialog that replaces the secret of a key. */
import { useState } from "preact/hooks"
import type { ApiKey, IssuedKey } from "../api/Keys.ts"
import { useAction } from "./Calls.ts"
import { Dialog } from "./Dialog.tsx"
import { Alert } from "./Parts.tsx"
import { SecretNotice } from "./SecretNotice.tsx"
import { useSession } from "./Session.ts"

const gracePeriods: ReadonlyArray<readonly [text: string, seconds: number]> = [
  ["ends now", 0],
  ["works for 1 hour", 3_600],
  ["works for 1 day", 86_400],
  ["works for 7 days", 604_800],
  ["works for 30 days", 2_592_000]
]

export const RotateDialog = ({ apiKey, onChanged, onClose }: {
  readonly apiKey: ApiKey
  onChanged(): void
  onClose(): void
}) => {
  const { announce, client } = useSession()
  const [gracePeriodSeconds, setGracePeriodSeconds] = useState(0)
  const [issued, setIssued] = useState<IssuedKey>()
  const { failure, isRunning, run } = useAction()
  if (issued !== undefined) {
    return (
      <Dialog key="secret" title="Key rotated" mustConfirm onClose={onClose}>
        <SecretNotice issued={issued} onClose={onClose} />
      </Dialog>
    )
  }
  const submit = (event: Event): void => {
    event.preventDefault()
    run(client.rotate(apiKey.id, { gracePeriodSeconds }), (key) => {
      setIssued(key)
      announce(`The key ${key.name} has a new secret.`)
      onChanged()
    })
  }
  return (
    <Dialog key="form" title="Rotate key" onClose={onClose}>
      <form onSubmit={submit}>
        <p>
          <strong>{apiKey.name}</strong> gets a new secret. Its id, plan and counts stay.
        </p>
        <label class="field">
          <span>The current secret</span>
          <select
            value={gracePeriodSeconds}
            onChange={({ currentTarget }) => setGracePeriodSeconds(Number(currentTarget.value))}
          >
            {gracePeriods.map(([text, seconds]) => <option value={seconds}>{text}</option>)}
          </select>
        </label>
        {failure !== undefined && <Alert>{failure.message}</Alert>}
        <div class="buttons">
          <button type="button" onClick={onClose}>Cancel</button>
          <button type="submit" class="primary" aria-disabled={isRunning}>Rotate key</button>
        </div>
      </form>
    </Dialog>
  )
}
