/**
 * Declares OpenTelemetry's variables that Effect's exporter reads by itself. The check at the start of the process
 * includes them, because the exporter ends the process without naming the variable of an invalid value.
 */
import { type Form, secret } from "./Setting.ts"

const httpUrl: Form = { form: "a URL like http://host:4318/v1/traces", isValid: (value) => isHttpUrl(value) }
const isHttpUrl = (value: string): boolean => /^https?:$/.test(URL.parse(value)?.protocol ?? "")

const isDecodable = (text: string): boolean => {
  try {
    decodeURIComponent(text)
    return true
  } catch {
    return false
  }
}

/** The exporter skips an entry without `=`, such as that after a last comma. */
const pairs: Form = {
  form: "pairs like name=value, separated by commas",
  isValid: (value) => value.split(",").every((pair) => !pair.includes("=") || isDecodable(pair))
}
const milliseconds: Form = { form: "a whole number of milliseconds", isValid: (value) => /^\d{1,9}$/.test(value) }
const size: Form = { form: "a whole number from 1 to 999999", isValid: (value) => /^[1-9]\d{0,5}$/.test(value) }
const words = (...all: ReadonlyArray<string>): Form => ({
  form: all.join(" or "),
  isValid: (value) => all.includes(value)
})
const compressions = words("gzip", "none")
const booleans: Form = {
  form: "true or false",
  isValid: (value) => /^(true|false|yes|no|on|off|1|0|y|n)$/.test(value)
}
/** OpenTelemetry has more exporters, such as `console`. Effect's exporter only looks for `otlp`. */
const exporters: Form = { form: "otlp or none", isValid: (value) => /^ *[\w-]+ *(, *[\w-]+ *)*$/.test(value) }

/** None of them has a type for this service, so they are read as text, and never shown. */
const declare = (name: string, form: Form, meaning: string, byDefault = "none") =>
  secret(name, form, { byDefault, meaning })

const signals = ["TRACES", "METRICS", "LOGS"] as const

const general = "`OTEL_EXPORTER_OTLP_…`"

/** All variables, in the order of the table in docs/configuration.md. */
export const all = [
  declare("OTEL_SDK_DISABLED", booleans, "Whether nothing is exported.", "`false`"),
  ...signals.map((signal) =>
    declare(`OTEL_${signal}_EXPORTER`, exporters, `Whether ${signal.toLowerCase()} are exported.`, "`otlp`")
  ),
  ...signals.map((signal) =>
    declare(
      `OTEL_EXPORTER_OTLP_${signal}_ENDPOINT`,
      httpUrl,
      `The whole URL for ${signal.toLowerCase()}.`,
      `\`OTEL_EXPORTER_OTLP_ENDPOINT\` with \`/v1/${signal.toLowerCase()}\``
    )
  ),
  declare("OTEL_EXPORTER_OTLP_HEADERS", pairs, "Headers of each export, for example a credential."),
  ...signals.map((signal) =>
    declare(
      `OTEL_EXPORTER_OTLP_${signal}_HEADERS`,
      pairs,
      `Headers of the exports of ${signal.toLowerCase()}.`,
      general.replace("…", "HEADERS")
    )
  ),
  declare("OTEL_EXPORTER_OTLP_COMPRESSION", compressions, "The compression of exports.", "`none`"),
  ...signals.map((signal) =>
    declare(
      `OTEL_EXPORTER_OTLP_${signal}_COMPRESSION`,
      compressions,
      `The compression of ${signal.toLowerCase()}.`,
      general.replace("…", "COMPRESSION")
    )
  ),
  declare("OTEL_EXPORTER_OTLP_TIMEOUT", milliseconds, "The maximum time of the last export, at the end.", "`3000`"),
  ...signals.map((signal) =>
    declare(
      `OTEL_EXPORTER_OTLP_${signal}_TIMEOUT`,
      milliseconds,
      `The maximum time of the last export of ${signal.toLowerCase()}.`,
      general.replace("…", "TIMEOUT")
    )
  ),
  declare("OTEL_BSP_SCHEDULE_DELAY", milliseconds, "The time between two exports of traces.", "`5000`"),
  declare("OTEL_BSP_EXPORT_TIMEOUT", milliseconds, "As `OTEL_EXPORTER_OTLP_TRACES_TIMEOUT`, which comes first."),
  declare("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", size, "The maximum of spans in one export.", "`512`"),
  declare("OTEL_BLRP_SCHEDULE_DELAY", milliseconds, "The time between two exports of logs.", "`1000`"),
  declare("OTEL_BLRP_EXPORT_TIMEOUT", milliseconds, "As `OTEL_EXPORTER_OTLP_LOGS_TIMEOUT`, which comes first."),
  declare("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", size, "The maximum of log records in one export.", "`1000`"),
  declare("OTEL_METRIC_EXPORT_INTERVAL", milliseconds, "The time between two exports of metrics.", "`10000`"),
  declare("OTEL_METRIC_EXPORT_TIMEOUT", milliseconds, "As `OTEL_EXPORTER_OTLP_METRICS_TIMEOUT`, which comes first."),
  declare(
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
    words("delta", "cumulative"),
    "Whether counters are exported as differences or as sums.",
    "`cumulative`"
  ),
  declare("OTEL_RESOURCE_ATTRIBUTES", pairs, "Attributes of all telemetry of this service."),
  declare("OTEL_SERVICE_VERSION", { form: "text", isValid: () => true }, "The version in all telemetry.")
]
