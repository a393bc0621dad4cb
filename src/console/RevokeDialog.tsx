/** The dialog that revokes a key. */
import type { ApiKey } from "../api/Keys.ts"
import { useAction } from "./Calls.ts"
import { Dialog } from "./Dialog.tsx"
import { Alert } from "./Parts.tsx"
import { useSession } from "./Session.ts"

export const RevokeDialog = ({ apiKey, onChanged, onClose }: {
  readonly apiKey: ApiKey
  onChanged(): void
  onClose(): void
}) => {
  const { announce, client } = useSession()
  const { failure, isRunning, run } = useAction()
  const revoke = (): void =>
    run(client.revoke(apiKey.id), () => {
      announce(`The key ${apiKey.name} was revoked.`)
      onChanged()
      onClose()
    })
  return (
    <Dialog title="Revoke key" onClose={onClose}>
      <p>
        <strong>{apiKey.name}</strong> stops working within a second. This cannot be undone.
      </p>
      {failure !== undefined && <Alert>{failure.message}</Alert>}
      <div class="buttons">
        <button type="button" autoFocus onClick={onClose}>Cancel</button>
        <button type="button" class="danger" aria-disabled={isRunning} onClick={revoke}>Revoke key</button>
      </div>
    </Dialog>
  )
}
