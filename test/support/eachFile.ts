import * as fc from "fast-check"
import { showLoggedErrors } from "./LoggedErrors.ts"

/** Generated tests have the same cases in each run. `FC_SEED=2 npm test` runs others. */
fc.configureGlobal({ seed: Number(process.env.FC_SEED ?? 1) })

showLoggedErrors()
