import { Context, Effect, Layer, References, Scope, Tracer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { NotFound } from "../api/Errors.ts"
import { CurrentKey, operationMiddleware } from "../api/OperationMiddleware.ts"
import { listLimit } from "../api/Paging.ts"
import { petCursors } from "../api/Pets.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import * as HeldServices from "../node-server/HeldServices.ts"
import { PetRepository } from "../pets/PetRepository.ts"

const group = HttpApiBuilder.group(PetstoreApi, "pets", (handlers) =>
  Effect.gen(function*() {
    const repository = yield* PetRepository
    return handlers.handleAll({
      listPets: ({ query }) => {
        const { cursor, limit = listLimit.default, status } = query
        const list = (after?: bigint) =>
          Effect.map(repository.list({ limit, status, after }), ({ items: pets, next }) =>
            next === undefined ? { pets } : { pets, next: { ...query, cursor: petCursors.encode(next) } })
        return cursor === undefined ? list() : Effect.flatMap(petCursors.decode(cursor), list)
      },
      createPet: ({ headers: { "idempotency-key": key }, payload }) =>
        Effect.map(
          key === undefined
            ? repository.create(payload)
            : CurrentKey.use(({ id: owner }) =>
              repository.create(payload, { owner, key })
            ),
          ({ isReplay, item: pet }) => ({ pet, isReplay })
        ),
      getPet: ({ params: { petId } }) =>
        Effect.flatMap(
          repository.find(petId),
          (found) => Effect.fromOption(found, () => new NotFound({ message: `There is no pet ${petId}.` }))
        )
    })
  }))

const needed = [PetRepository, Scope.Scope, ...operationMiddleware] as const

/** HttpApi adds this context to that of every request, so leave out the span and the log fields that a request has. */
const contextOfRequests = <Needed extends Context.Service.Identifier<typeof needed[number]>>(
  context: Context.Context<Needed>
) =>
  HeldServices.omit(context).pipe(
    Context.omit(Tracer.ParentSpan, References.CurrentLogAnnotations),
    Context.merge(Context.pick(...needed)(context))
  )

export const layer = Layer.effectContext(
  Effect.updateContext(Layer.build(group), contextOfRequests<Context.Service.Identifier<typeof needed[number]>>)
)
