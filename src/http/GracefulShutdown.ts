import { Context, Layer, Ref } from "effect"

/** Whether the process is shutting down. If so, each connection closes after its response. */
export class GracefulShutdown
  extends Context.Service<GracefulShutdown, Ref.Ref<boolean>>()("petstore/http/GracefulShutdown")
{
  static readonly layer = Layer.effect(GracefulShutdown, Ref.make(false))
}
