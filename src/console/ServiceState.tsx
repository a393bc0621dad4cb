/** The version of the service, and whether it is ready. */
import { Effect } from "effect"
import { useEffect, useState } from "preact/hooks"
import { repeatEvery, runInBackground } from "./Calls.ts"

/** The state of the service, from `/healthz` and `/readyz`. */
interface State {
  readonly version: string
  readonly ready: boolean
}

/** Returns the fields of a report, or `undefined` if the service is not healthy or not ready. */
const readReport = async (path: string): Promise<ReadonlyMap<string, unknown> | undefined> => {
  const response = await fetch(path).catch(() => undefined)
  if (response?.ok !== true) return undefined
  const body: unknown = await response.json().catch(() => undefined)
  if (body === undefined) return undefined
  return new Map(typeof body === "object" && body !== null ? Object.entries(body) : [])
}

const textOf = (value: unknown): string => typeof value === "string" ? value : ""

/** Reads the state of the service. */
const readServiceState = async (): Promise<State> => {
  const [health, readiness] = await Promise.all([readReport("/healthz"), readReport("/readyz")])
  return {
    version: textOf(health?.get("version")),
    ready: readiness !== undefined
  }
}

/** Returns the state of the service, read every 10 seconds. */
export const useServiceState = (): State | undefined => {
  const [state, setState] = useState<State>()
  useEffect(() => runInBackground(repeatEvery(Effect.map(Effect.promise(readServiceState), setState), 10_000)), [])
  return state
}

export const ServiceState = () => {
  const state = useServiceState()
  if (state === undefined) return <span class="service" />
  return (
    <span class="service">
      <span class={state.ready ? "dot ok" : "dot bad"} />
      {state.ready ? "ready" : "not ready"}
      {state.version !== "" && <span class="version">v{state.version}</span>}
    </span>
  )
}
