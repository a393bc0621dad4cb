/** A modal dialog: the browser keeps the focus inside, and returns it to the opener. */
import type { ComponentChildren } from "preact"
import { useLayoutEffect, useRef } from "preact/hooks"

export const Dialog = ({ children, mustConfirm = false, onClose, title }: {
  readonly title: string
  /** Whether Escape does not close the dialog, because its content is shown once. */
  readonly mustConfirm?: boolean
  readonly children: ComponentChildren
  onClose(): void
}) => {
  const dialog = useRef<HTMLDialogElement>(null)
  const latest = useRef(onClose)
  latest.current = onClose
  // Before the browser paints, so that no input of the keyboard falls between.
  useLayoutEffect(() => {
    const opener = document.activeElement
    const element = dialog.current
    const close = (): void => latest.current()
    element?.showModal()
    element?.addEventListener("close", close)
    return () => {
      element?.removeEventListener("close", close)
      element?.close()
      if (opener instanceof HTMLElement) opener.focus()
    }
  }, [])
  // Chromium closes a dialog at the second Escape, also if a handler prevented the first one.
  useLayoutEffect(() => dialog.current?.setAttribute("closedby", mustConfirm ? "none" : "closerequest"), [mustConfirm])
  return (
    <dialog
      ref={dialog}
      aria-labelledby="dialog-title"
      onCancel={(event) => {
        event.preventDefault()
        if (!mustConfirm) onClose()
      }}
    >
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  )
}
