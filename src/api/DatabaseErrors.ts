import { ServiceUnavailable } from "./Errors.ts"

/** The errors of operations during an outage of the database. */
export const databaseErrors = {
  unavailable: new ServiceUnavailable({ message: "The database does not respond. Retry shortly." }),
  readOnly: new ServiceUnavailable({ message: "The database is currently read-only. Reads work; retry writes later." })
}
