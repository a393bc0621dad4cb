/** The dialog that issues a key. */
import { useState } from "preact/hooks"
import type { IssuedKey } from "../api/Keys.ts"
import { useAction } from "./Calls.ts"
import { Dialog } from "./Dialog.tsx"
import { emptyFields, KeyFields, newKeyOf } from "./KeyFields.tsx"
import { Alert } from "./Parts.tsx"
import { SecretNotice } from "./SecretNotice.tsx"
import { useSession } from "./Session.ts"

export const IssueDialog = ({ onClose, onIssued }: { onIssued(): void; onClose(): void }) => {
  const { announce, client } = useSession()
  const [fields, setFields] = useState(emptyFields)
  const [issued, setIssued] = useState<IssuedKey>()
  const { failure, isRunning, run } = useAction()
  if (issued !== undefined) {
    return (
      <Dialog key="secret" title="Key issued" mustConfirm onClose={onClose}>
        <SecretNotice issued={issued} onClose={onClose} />
      </Dialog>
    )
  }
  const submit = (event: Event): void => {
    event.preventDefault()
    run(client.issue(newKeyOf(fields)), (key) => {
      setIssued(key)
      announce(`The key ${key.name} was issued.`)
      onIssued()
    })
  }
  return (
    <Dialog key="form" title="Issue key" onClose={onClose}>
      <form onSubmit={submit}>
        <KeyFields fields={fields} onChange={setFields} />
        {failure !== undefined && <Alert>{failure.message}</Alert>}
        <div class="buttons">
          <button type="button" onClick={onClose}>Cancel</button>
          <button type="submit" class="primary" aria-disabled={isRunning}>Issue key</button>
        </div>
      </form>
    </Dialog>
  )
}
