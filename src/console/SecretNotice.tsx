/** Shows the secret of an issued or rotated key, once. */
import { Redacted } from "effect"
import type { IssuedKey } from "../api/Keys.ts"
import { CopyButton } from "./Parts.tsx"

export const SecretNotice = ({ issued, onClose }: { readonly issued: IssuedKey; onClose(): void }) => {
  const secret = Redacted.value(issued.key)
  return (
    <>
      <p>
        Copy the secret of <strong>{issued.name}</strong>{" "}
        now. It is shown only here, and the service stores only its hash.
      </p>
      <div class="secret">
        <input
          class="mono"
          readOnly
          autoFocus
          value={secret}
          aria-label="Secret"
          spellcheck={false}
          onFocus={({ currentTarget }) => currentTarget.select()}
        />
        <CopyButton label="the secret" text={secret} />
      </div>
      <div class="buttons">
        <button type="button" class="primary" onClick={onClose}>Done</button>
      </div>
    </>
  )
}
