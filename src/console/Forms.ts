import type { TargetedSubmitEvent } from "preact"

/** The trimmed values of the fields that are not empty. */
export const textsOf = (form: FormData): Readonly<Record<string, string>> =>
  Object.fromEntries(
    [...form].flatMap(([name, value]) => typeof value === "string" && value.trim() !== "" ? [[name, value.trim()]] : [])
  )

export const handleSubmit = (use: (form: FormData) => void) => (event: TargetedSubmitEvent<HTMLFormElement>): void => {
  event.preventDefault()
  use(new FormData(event.currentTarget))
}
