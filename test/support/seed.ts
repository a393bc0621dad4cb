/** Generated tests have the same cases in each run. `FC_SEED=2 npm test` runs others. */
import * as fc from "fast-check"

fc.configureGlobal({ seed: Number(process.env.FC_SEED ?? 1) })
