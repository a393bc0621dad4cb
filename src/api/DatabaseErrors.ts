import { ServiceUnavailable } from "./Errors.ts"

/** The responses to operations while the database does not respond, or rejects writes. */
export const databaseErrors = {
  unavailable: new ServiceUnavailable({ message: "The database does not respond. Retry shortly." }),
  readOnly: new ServiceUnavailable({ message: "The database is currently read-only. Reads work; retry writes later." })
}
