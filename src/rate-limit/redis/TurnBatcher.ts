import type { Limits } from "../../api/Plans.ts"
import { type Caller, isKey } from "../CallerStates.ts"
import * as Policy from "../Policy.ts"

/** A charge, or a peek, which changes nothing. `resume` gets its decision. */
export interface Call {
  readonly isCharge: boolean
  readonly resume: (decision: Policy.Decision) => void
}

/** Calls for one caller under the same limits, in the order of their arrival. */
export interface Batch {
  readonly caller: Caller
  readonly limits: Limits
  readonly calls: Array<Call>
}

/** The maximum of calls in a batch. Redis runs nothing else while a script charges them, for some microseconds. */
export const maxCallsPerBatch = 128

/**
 * Collects the calls of one turn of the event loop into batches by caller, and sends the batches at the end of the
 * turn. The batches of a caller are sent in the order of its calls. No batch grows once it is sent.
 */
export class TurnBatcher {
  readonly #send: (batch: Batch) => void
  #batches: Array<Batch> = []
  /** The batches that take further calls. It is new in each turn: `FreeList.ts` explains the cost of a changing map. */
  #open = new Map<Caller, Batch>()

  constructor(send: (batch: Batch) => void) {
    this.#send = send
  }

  add(caller: Caller, limits: Limits, call: Call): void {
    const open = this.#open.get(caller)
    if (open !== undefined && hasLimits(open, limits) && open.calls.length < maxCallsPerBatch) {
      open.calls.push(call)
      return
    }
    const batch = { caller, limits, calls: [call] }
    if (this.#batches.length === 0) setImmediate(() => this.flush())
    this.#batches.push(batch)
    this.#open.set(caller, batch)
  }

  /** Sends all calls so far, for an operation that must follow them. */
  flush(): void {
    const batches = this.#batches
    this.#batches = []
    this.#open = new Map()
    for (const batch of batches) this.#send(batch)
  }
}

const hasLimits = ({ limits }: Batch, { perDay, perMinute }: Limits): boolean =>
  limits.perMinute === perMinute && limits.perDay === perDay

export const countCharges = ({ calls }: Batch): number =>
  calls.reduce((charges, { isCharge }) => isCharge ? charges + 1 : charges, 0)

/** Decides on the calls of a batch in turn, at one time, from the `state` before it. Returns the state after it too. */
export const decideBatch = ({ caller, calls, limits }: Batch, state: Policy.State, now: number) => {
  const bannable = isKey(caller)
  let next = state
  const decisions = calls.map(({ isCharge }) => {
    if (!isCharge) return Policy.peek(next, limits, now)
    const charged = Policy.decide(next, limits, now, bannable)
    next = charged.next
    return charged.decision
  })
  return { decisions, next }
}
