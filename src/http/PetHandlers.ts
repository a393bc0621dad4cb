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
import { createdHeaders, type CreatedPet, ListQuery, type Pet, petsText, petText } from "../api/Pets.ts"
import { PetstoreApi } from "../api/PetstoreApi.ts"
import { PetRepository } from "../pets/PetRepository.ts"

type Response = HttpServerResponse.HttpServerResponse

const linkText = Schema.encodeSync(nextLink("/v1/pets", ListQuery))

const contentType = "application/json"

/** Renders the page of the found pets, of which there is one more than the page has if there is another page. */
const renderPage = (query: ListQuery, limit: number, found: ReadonlyArray<Pet>): Response => {
  const pets = found.length > limit ? found.slice(0, limit) : found
  const last = pets.at(-1)
  return HttpServerResponse.text(petsText(pets), {
    contentType,
    ...last !== undefined && found.length > limit && { headers: { link: linkText({ ...query, cursor: last.id }) } }
  })
}

/** Returns a function as `renderPage`, for first pages. The repository returns the same array for the same pets. */
const makeRenderFirstPage = (): typeof renderPage => {
  const cached = new WeakMap<ReadonlyArray<Pet>, { readonly limit: number | undefined; readonly response: Response }>()
  return (query, limit, found) => {
    const entry = cached.get(found)
    if (entry !== undefined && entry.limit === query.limit) return entry.response
    const response = renderPage(query, limit, found)
    cached.set(found, { limit: query.limit, response })
    return response
  }
}

const renderCreated = (pet: CreatedPet): Response =>
  HttpServerResponse.text(petText(pet), { status: 201, contentType, headers: createdHeaders(pet) })

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
        return Effect.map(repository.list({ limit: limit + 1, status, after }), (found) => render(query, limit, found))
      },
      createPet: ({ headers, payload }) => {
        const key = headers["idempotency-key"]
        const created = key === undefined
          ? Effect.orDie(repository.create(payload))
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
