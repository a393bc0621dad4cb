/** Modal dialogs. `<dialog>` keeps the focus inside, and returns it on closing to the button that opened the dialog. */
import { type Effect, Redacted } from "effect"
import type { ComponentChildren } from "preact"
import { useLayoutEffect, useRef } from "preact/hooks"
import type { IssuedKey } from "../api/KeySchemas.ts"
import { Alert, CopyButton, handleSubmit, Name } from "./Parts.tsx"
import { blockNavigation } from "./Route.ts"
import { type Failure, useAction } from "./Session.ts"

const Dialog = ({ children, isHeld, onClose, title }: {
  readonly title: string
  /** Whether Escape and Back are blocked and a reload asks for confirmation, so that a new secret is not lost. */
  readonly isHeld: boolean
  readonly children: ComponentChildren
  onClose(): void
}) => {
  const dialog = useRef<HTMLDialogElement>(null)
  // Open the dialog in a layout effect, so that it is open before the next key press.
  useLayoutEffect(() => {
    const element = dialog.current
    element?.showModal()
    return () => element?.close()
  }, [])
  useLayoutEffect(() => {
    // Set `closedby`, because Chromium closes a dialog at the second Escape even if `onCancel` prevents the default.
    dialog.current?.setAttribute("closedby", isHeld ? "none" : "closerequest")
    return isHeld ? blockNavigation() : undefined
  }, [isHeld])
  const onCancel = (event: Event): void => {
    event.preventDefault()
    if (!isHeld) onClose()
  }
  return (
    <dialog ref={dialog} aria-labelledby="dialog-title" onCancel={onCancel}>
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  )
}

/** While `call` runs, the dialog cannot close, because the response may contain a new secret. */
export function FormDialog<A>({ action, call, children, isDanger = false, onClose, onDone, title }: {
  readonly title: string
  readonly action: string
  readonly isDanger?: boolean
  readonly children: ComponentChildren
  call(form: FormData): Effect.Effect<A, Failure>
  onDone(value: A): void
  onClose(): void
}) {
  const { failure, isRunning, run } = useAction()
  return (
    <Dialog title={title} isHeld={isRunning} onClose={onClose}>
      <form onSubmit={handleSubmit((form) => run(call(form), onDone))}>
        {children}
        {failure !== undefined && <Alert>{failure}</Alert>}
        <div class="buttons">
          <button type="button" aria-disabled={isRunning} onClick={() => !isRunning && onClose()}>Cancel</button>
          <button type="submit" class={isDanger ? "danger" : "primary"} aria-disabled={isRunning}>{action}</button>
        </div>
      </form>
    </Dialog>
  )
}

export const SecretDialog = ({ issued, onClose }: { readonly issued: IssuedKey; onClose(): void }) => {
  const secret = Redacted.value(issued.key)
  return (
    <Dialog title="New secret" isHeld onClose={onClose}>
      <p>
        Copy the secret of <Name of={issued} />{" "}
        now. It is shown only here. The service stores only its hash and its last four characters.
      </p>
      <div class="secret">
        <textarea
          class="mono"
          readOnly
          autoFocus
          rows={2}
          value={secret}
          aria-label="Secret"
          onFocus={({ currentTarget }) => currentTarget.select()}
        />
        <CopyButton label="the secret" text={secret} />
      </div>
      <div class="buttons">
        <button type="button" class="primary" onClick={onClose}>Done</button>
      </div>
    </Dialog>
  )
}
