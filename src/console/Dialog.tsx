/** Modal dialogs. `<dialog>` keeps the focus inside, and returns it on closing to the button that opened the dialog. */
import { Effect, Redacted } from "effect"
import type { ComponentChildren } from "preact"
import { useLayoutEffect, useRef, useState } from "preact/hooks"
import type { ApiKey, IssuedKey } from "../api/Keys.ts"
import { describeChanges } from "./Changes.tsx"
import { Alert, CopyButton, handleSubmit, Name } from "./Parts.tsx"
import { holdPage } from "./Route.ts"
import { type Failure, useAction, useSession } from "./Session.ts"

const Dialog = ({ children, isHeld, onClose, title }: {
  readonly title: string
  /** Whether to block Escape and Back, and to ask before a reload, because leaving could lose a new secret. */
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
    return isHeld ? holdPage() : undefined
  }, [isHeld])
  return (
    <dialog
      ref={dialog}
      aria-labelledby="dialog-title"
      onCancel={(event) => {
        event.preventDefault()
        if (!isHeld) onClose()
      }}
    >
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  )
}

/** Submits its form with `call`. While `call` runs, the dialog cannot close: the response may contain a secret. */
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

/** Changes a key if it still has the version that the dialog shows (optimistic locking), or explains the conflict. */
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
        `${onConflict ? "Your entries are kept. " : ""}Choose “${dialog.action}” again to change the key as it is now.`
      return Effect.fail({ _tag: "PreconditionFailed", message })
    })
  return (
    <FormDialog
      {...dialog}
      call={(form) => Effect.catchTag(call(form, seen), "PreconditionFailed", () => explain(form))}
    />
  )
}

export const SecretDialog = ({ issued, onClose }: { readonly issued: IssuedKey; onClose(): void }) => {
  const secret = Redacted.value(issued.key)
  return (
    <Dialog title="New secret" isHeld onClose={onClose}>
      <p>
        Copy the secret of <Name of={issued} /> now. It is shown only here, and the service stores only its hash.
      </p>
      <div class="secret">
        <input
          class="mono"
          readOnly
          autoFocus
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
