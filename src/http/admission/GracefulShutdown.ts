/** Tells the server that its shutdown has begun. `node/Drain.ts` begins it. */
import { Context, Layer } from "effect"

/** Whether the shutdown has begun. Each running service has its own instance. */
export class GracefulShutdown
  extends Context.Service<GracefulShutdown, { begun: boolean }>()("petstore/http/GracefulShutdown")
{
  static readonly layer = Layer.sync(GracefulShutdown, () => ({ begun: false }))
}
