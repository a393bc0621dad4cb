/** The animals of the store: what they are (SPEC §2) and what can be done with them (SPEC §4). */
import { Schema, SchemaGetter } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiMiddleware, HttpApiSchema, OpenApi } from "effect/http-api"
import * as Errors from "./Errors.ts"
import { exactJson, Int64, parseInteger } from "./Int64.ts"
import { cursor, limit, nextLink } from "./Paging.ts"
import { PathHeaders } from "./PathHeaders.ts"
import { isStorable } from "./Text.ts"

/** Availability of an animal (SPEC §3). */
export const PetStatus = Schema.Literals(["available", "pending", "sold"]).annotate({
  identifier: "PetStatus",
  description: "Availability.",
  message: "Expected available, pending or sold"
})
export type PetStatus = typeof PetStatus.Type

/** An animal to be added. */
export const NewPet = Schema.Struct({
  name: Schema.String.annotate({ description: "The animal's name." }).check(isStorable),
  categoryId: Int64.annotate({ description: "Identifier of the category the animal belongs to." }),
  status: Schema.optionalKey(PetStatus)
}).annotate({ identifier: "NewPet", message: "Expected an object" })
export interface NewPet extends Schema.Schema.Type<typeof NewPet> {}

/** An animal as the service returns it. */
export const Pet = Schema.Struct({
  id: Int64.annotate({ description: "Unique identifier assigned by the service on creation." }),
  ...NewPet.fields
}).annotate({ identifier: "Pet" })
export interface Pet extends Schema.Schema.Type<typeof Pet> {}

/** The answer of {@link listPets}. */
export const Pets = Schema.Array(Pet).annotate({ identifier: "Pets" })

/** Characters of the names in a page: where they are long it has fewer animals than it may, but at least one. */
export const maxPageCharacters = 262_144

const idempotencyKey = /^(?:"[!#-~]{1,255}"|[!#-~]{1,255})$/

/** Names one addition, so that it can be sent again without adding twice. */
const IdempotencyKey = Schema.String.annotate({
  description: "Names this addition: sent again within 24 hours, it is answered again and not done again.",
  pattern: idempotencyKey.source
}).check(
  Schema.isPattern(idempotencyKey, {
    expected: "1 to 255 visible ASCII characters but quotation marks, in quotation marks or not"
  })
).pipe(
  Schema.decodeTo(Schema.String, {
    decode: SchemaGetter.transform((text: string) => text.replaceAll(`"`, "")),
    encode: SchemaGetter.passthrough()
  })
)

const petText = exactJson("Pet", Pet)

/** Which animals a list is of, and from where on. */
export const ListQuery = Schema.Struct({
  limit: Schema.optionalKey(limit("Maximum number of animals returned.")),
  status: Schema.optionalKey(PetStatus),
  // The id after which the page begins.
  cursor: Schema.optionalKey(cursor(Int64, { format: String, parse: parseInteger }))
})
export interface ListQuery extends Schema.Schema.Type<typeof ListQuery> {}

/** A page of the list: the body is the animals, `next` the query of the page after it, in the `Link` header. */
export const PetsPage = Schema.Struct({
  pets: Pets,
  next: Schema.optionalKey(ListQuery)
})
export interface PetsPage extends Schema.Schema.Type<typeof PetsPage> {}

const listPets = HttpApiEndpoint.get("listPets", "/pets", {
  query: ListQuery.fields,
  success: PetsPage.pipe(HttpApiSchema.encodeToWithHeaders({
    body: exactJson("Pets", Pets),
    headers: {
      link: Schema.optionalKey(nextLink("/v1/pets", ListQuery))
    }
  }, {
    decode: ({ body, headers: { link } }) => ({ pets: body, ...link && { next: link } }),
    encode: ({ next, pets }) => ({ body: pets, headers: { ...next && { link: next } } })
  })),
  error: [...Errors.commonErrors]
}).annotateMerge(OpenApi.annotations({
  summary: "List animals",
  description: "Returns a paginated list of animals, by ascending id."
}))

const createPet = HttpApiEndpoint.post("createPet", "/pets", {
  headers: { "idempotency-key": Schema.optionalKey(IdempotencyKey) },
  payload: exactJson("NewPet", NewPet),
  success: Pet.pipe(HttpApiSchema.encodeToWithHeaders({
    body: petText.pipe(HttpApiSchema.status(201)),
    headers: { location: Schema.String }
  }, {
    decode: ({ body }) => body,
    encode: (pet) => ({ body: pet, headers: { location: `/v1/pets/${pet.id}` } })
  })),
  error: [
    Errors.errorResponse(Errors.IdempotencyKeyReused),
    ...Errors.commonErrors
  ]
}).annotateMerge(OpenApi.annotations({ summary: "Add an animal" }))

/** When getPet is removed (SPEC §4.3). */
export const getPetSunset = new Date("2030-12-05T00:00:00Z")

/** Its deprecation (RFC 9745), end (RFC 8594) and successor (SPEC §4.3, §9.3), on every answer of its path. */
export const getPetHeaders = {
  deprecation: `@${new Date("2026-11-21T00:00:00Z").getTime() / 1000}`,
  sunset: getPetSunset.toUTCString(),
  link: `</v1/pets>; rel="successor-version"`
}

/** Answers 410 from the day on that the operation is removed. */
export class Sunset extends HttpApiMiddleware.Service<Sunset>()("petstore/api/Sunset", {
  error: Errors.errorResponse(Errors.Gone)
}) {}

const getPet = HttpApiEndpoint.get("getPet", "/pets/:petId", {
  params: { petId: Int64 },
  success: petText,
  error: [Errors.errorResponse(Errors.NotFound), ...Errors.commonErrors]
}).middleware(Sunset).annotate(PathHeaders, getPetHeaders).annotateMerge(OpenApi.annotations({
  summary: "Get an animal",
  description: "Will be removed on 5 December 2030. Use `GET /pets` with the `status` filter instead.",
  deprecated: true
}))

export class PetsGroup extends HttpApiGroup.make("pets", { topLevel: true })
  .add(listPets, createPet, getPet)
  .annotateMerge(OpenApi.annotations({ description: "The animals held in the store." }))
{}
