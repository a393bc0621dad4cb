/** The dialog that changes a key. A change that another operator made meanwhile is not overwritten. */
import { useState } from "preact/hooks"
import type { ApiKey } from "../api/Keys.ts"
import { useAction } from "./Calls.ts"
import { Dialog } from "./Dialog.tsx"
import { changeOf, fieldsOf, KeyFields } from "./KeyFields.tsx"
import { Alert } from "./Parts.tsx"
import { useSession } from "./Session.ts"

export const ChangeDialog = ({ apiKey, onChanged, onClose }: {
  readonly apiKey: ApiKey
  onChanged(): void
  onClose(): void
}) => {
  const { announce, client } = useSession()
  const [before, setBefore] = useState(apiKey)
  const [fields, setFields] = useState(fieldsOf(apiKey))
  const { failure, isRunning, run } = useAction()
  const reload = useAction()
  /** Whether the form has been filled again since the last conflict. */
  const [isCurrent, setIsCurrent] = useState(true)
  const hasConflict = failure?._tag === "PreconditionFailed"
  const submit = (event: Event): void => {
    event.preventDefault()
    setIsCurrent(false)
    run(client.update(before.id, changeOf(fieldsOf(before), fields), { version: before.version }), (changed) => {
      announce(`The key ${changed.name} was changed.`)
      onChanged()
      onClose()
    })
  }
  // The form takes the state of the other change. The operator decides what to change in it.
  const showCurrent = (): void =>
    reload.run(client.find(before.id), (current) => {
      setIsCurrent(true)
      setBefore(current)
      setFields(fieldsOf(current))
      onChanged()
    })
  const isOutdated = hasConflict && !isCurrent
  return (
    <Dialog title="Change key" onClose={onClose}>
      <form onSubmit={submit}>
        <KeyFields fields={fields} onChange={setFields} />
        {failure !== undefined && !hasConflict && <Alert>{failure.message}</Alert>}
        {hasConflict && (
          <Alert>
            {isOutdated
              ? "The key was changed meanwhile, so nothing was saved."
              : "The form shows the key as it is now. Make your change again."}
          </Alert>
        )}
        {reload.failure !== undefined && <Alert>{reload.failure.message}</Alert>}
        <div class="buttons">
          <button type="button" onClick={onClose}>Cancel</button>
          {isOutdated
            ? <button type="button" class="primary" onClick={showCurrent}>Show the current key</button>
            : <button type="submit" class="primary" aria-disabled={isRunning}>Save</button>}
        </div>
      </form>
    </Dialog>
  )
}
