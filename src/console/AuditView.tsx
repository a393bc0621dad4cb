/** The audit log of all keys. */
import { AuditTable } from "./AuditTable.tsx"

export const AuditView = () => (
  <>
    <div class="heading">
      <h1>Audit log</h1>
    </div>
    <AuditTable />
  </>
)
