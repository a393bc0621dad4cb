/** The 503 for requests that fail because of an outage of the database. */
import { ServiceUnavailable } from "../../api/Errors.ts"
import { isOutage, isReadOnly } from "../../database/Outage.ts"

const unavailable = new ServiceUnavailable()
const readOnly = new ServiceUnavailable({
  message: "The database accepts no writes at the moment. Reads work."
})

/** Returns the error for a failure that is an outage of the database, or `undefined` for another failure. */
export const outageOf = (failure: unknown): ServiceUnavailable | undefined =>
  isReadOnly(failure) ? readOnly : isOutage(failure) ? unavailable : undefined
