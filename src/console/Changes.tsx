import { type AuditValues, changesOf, valuesOf } from "../api/Audit.ts"
import type { ApiKey } from "../api/KeySchemas.ts"
import { formatNumber } from "./Parts.tsx"

const isInstant = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

const formatValue = (name: string, value: AuditValues[string] | undefined): string => {
  if (value === undefined || value === null) return "none"
  if (typeof value === "boolean") return value ? "yes" : "no"
  if (typeof value === "number") return formatNumber(value)
  if (name === "hint") return `…${value}`
  return isInstant.test(value) ? `${value.slice(0, 16).replace("T", " ")} UTC` : value
}

export const Changes = ({ after, before }: Readonly<Record<"after" | "before", AuditValues | null>>) => (
  <ul class="changes">
    {changesOf(before, after)
      .filter((change) => before !== null || (change.after ?? null) !== null)
      .map((change) => (
        <li key={change.name}>
          <span class="muted">{change.words}</span> {change.before !== undefined && (
            <>
              <bdi>{formatValue(change.name, change.before)}</bdi> →{" "}
            </>
          )}
          <bdi>{formatValue(change.name, change.after)}</bdi>
        </li>
      ))}
  </ul>
)

export const describeChanges = (before: ApiKey, after: ApiKey): string => {
  const changes = changesOf(valuesOf(before), valuesOf(after)).filter((change) => change.before !== change.after)
  const texts = changes.map((change) =>
    `${change.words} ${formatValue(change.name, change.before)} → ${formatValue(change.name, change.after)}`
  )
  return texts.length === 0 ? "former secrets revoked" : texts.join(", ")
}
