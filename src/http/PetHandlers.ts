/**
 * The handlers of the pet operations: list, create and get (SPEC §4). They return responses with ready texts, which
 * HttpApi passes on as they are. So the service renders each first page once.
 */
import { Context, Effect, Layer, Option, Schema, Scope } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { NotFound } from "../api/Errors.ts"
import { Auth, CurrentKey, RateLimit, Sunset, Validation } from "../api/OperationMiddleware.ts"
import { listLimit, nextLink } from "../api/Paging.ts"
import { createdHeaders, ListQuery, petsText, petText, replayed } from "../api/Pets.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import { type Created, type Page, PetRepository } from "../pets/PetRepository.ts"

type Response = HttpServerResponse.HttpServerResponse

const linkText = Schema.encodeSync(nextLink("/v1/pets", ListQuery))

const contentType = "application/json"

const renderPage = (query: ListQuery, { next, pets }: Page): Response =>
  HttpServerResponse.text(petsText(pets), {
    contentType,
    ...next !== undefined && { headers: { link: linkText({ ...query, cursor: next }) } }
  })

/** Returns a function as `renderPage`, for first pages. The repository can return the same array for the same pets. */
const makeRenderFirstPage = (): typeof renderPage => {
  const cached = new WeakMap<
    ReadonlyArray<unknown>,
    { readonly limit: number | undefined; readonly response: Response }
  >()
  return (query, page) => {
    const entry = cached.get(page.pets)
    if (entry !== undefined && entry.limit === query.limit) return entry.response
    const response = renderPage(query, page)
    cached.set(page.pets, { limit: query.limit, response })
    return response
  }
}

const renderCreated = ({ isReplay, pet }: Created): Response =>
  HttpServerResponse.text(petText(pet), {
    status: 201,
    contentType,
    headers: createdHeaders({ ...pet, ...isReplay && { [replayed]: true } })
  })

const group = HttpApiBuilder.group(
  PetstoreApi,
  "pets",
  Effect.fnUntraced(function*(handlers) {
    const repository = yield* PetRepository
    const renderFirstPage = makeRenderFirstPage()
    return handlers.handleAll({
      listPets: ({ query }) => {
        const { cursor: after, limit = listLimit.default, status } = query
        const render = after === undefined ? renderFirstPage : renderPage
        return Effect.map(repository.list({ limit, status, after }), (page) => render(query, page))
      },
      createPet: ({ headers, payload }) => {
        const key = headers["idempotency-key"]
        const created = key === undefined
          ? repository.create(payload)
          : Effect.flatMap(CurrentKey, ({ id: owner }) => repository.create(payload, { owner, key }))
        return Effect.map(created, renderCreated)
      },
      getPet: ({ params: { petId } }) =>
        Effect.flatMap(repository.find(petId), (pet) =>
          Option.isSome(pet)
            ? Effect.succeed(HttpServerResponse.text(petText(pet.value), { contentType }))
            : Effect.fail(new NotFound({ message: `There is no pet ${petId}.` })))
    })
  })
)

/**
 * The handlers, built with only the services that they need. HttpApi adds the services of this layer to the context of
 * each request, so that each of them costs time.
 */
export const layer = Layer.effectContext(
  Effect.updateContext(
    Layer.build(group),
    Context.pick(PetRepository, Auth, RateLimit, Validation, Sunset, Scope.Scope)<
      PetRepository | Auth | RateLimit | Validation | Sunset | Scope.Scope
    >
  )
)
