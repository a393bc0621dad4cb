/** Whether the database is one from which this process only reads. */
import { Context } from "effect"

/** `true` if `DATABASE_URL` selects a standby. Then nothing is migrated or written in the background. */
export const IsReplica = Context.Reference<boolean>("petstore/database/IsReplica", { defaultValue: () => false })
