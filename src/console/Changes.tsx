import { type AuditValues, valuesOf, wordsOf } from "../api/Audit.ts"
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
    {Object.keys({ ...before, ...after })
      .filter((name) => before !== null || (after?.[name] ?? null) !== null)
      .map((name) => (
        <li key={name}>
          <span class="muted">{wordsOf(name)}</span> {before !== null && name in before && (
            <>
              <bdi>{formatValue(name, before[name])}</bdi> →{" "}
            </>
          )}
          <bdi>{formatValue(name, after?.[name])}</bdi>
        </li>
      ))}
  </ul>
)

export const describeChanges = (before: ApiKey, after: ApiKey): string => {
  const [old, changed] = [valuesOf(before), valuesOf(after)]
  const names = Object.keys(old).filter((name) => old[name] !== changed[name])
  return names.length === 0
    ? "former secrets revoked"
    : names.map((name) => `${wordsOf(name)} ${formatValue(name, old[name])} → ${formatValue(name, changed[name])}`)
      .join(", ")
}
