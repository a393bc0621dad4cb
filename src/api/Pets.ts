import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { createdResponse, createHeaders, idCursors, pageResponse } from "./CollectionEndpoints.ts"
import * as Errors from "./Errors.ts"
import { commonErrors, errorResponse } from "./ErrorSchemas.ts"
import { inOrder } from "./InOrder.ts"
import { exactJson, int64 } from "./Int64.ts"
import { bodySteps, deprecate, operationSteps, Sunset } from "./OperationMiddleware.ts"
import { Cursor, limit, listLimit } from "./Paging.ts"
import { isStorable, oneOf, openTo } from "./TextSchemas.ts"

/** The availability of a pet (SPEC §2 PetStatus). */
export const PetStatus = oneOf("available", "pending", "sold").annotate({
  identifier: "PetStatus",
  description: "Availability."
})
export type PetStatus = typeof PetStatus.Type

// The name of a stored pet. Its length is not checked here, because `NewPet` and a constraint of the table limit it.
const name = Schema.String.annotate({
  description: "The pet's name. Contains neither U+0000 nor lone surrogates.",
  examples: ["Rex"]
}).check(isStorable)

/** The body of `createPet` (SPEC §2 NewPet). */
export const NewPet = Schema.Struct({
  /**
   * The pet's name: at most 1,000 code points. The limit bounds the memory of a page of 100 pets. Even with all
   * characters escaped (12 KB), the name fits in a body of 16 KiB.
   */
  name: name.check(Schema.isMaxCodePoints(1_000, { expected: "a string of at most 1,000 characters" })),
  /** Identifier of the category: any 64-bit integer. */
  categoryId: int64("Identifier of the category that the pet belongs to.", 3),
  /** Availability. */
  status: Schema.optionalKey(PetStatus)
}).annotate({ identifier: "NewPet", message: "Expected an object" })
export interface NewPet extends Schema.Schema.Type<typeof NewPet> {}

/** A stored pet (SPEC §2 Pet). */
export const Pet = Schema.Struct({
  /** The identifier, which the service assigns. */
  id: int64("Unique identifier assigned by the service on creation.", 1),
  ...NewPet.fields,
  /** The pet's name, which can be empty. */
  name,
  /** Availability. A newer service may send another status. */
  status: Schema.optionalKey(openTo(PetStatus))
}).annotate({ identifier: "Pet" })
export interface Pet extends Schema.Schema.Type<typeof Pet> {}

/** The result of `createPet`. */
export const CreatedPet = Schema.Struct({
  /** The created pet. */
  pet: Pet,
  /** Whether an earlier request with the same idempotency key created the pet. */
  isReplay: Schema.Boolean
}).annotate({
  description: "The created pet, with its id."
})
export interface CreatedPet extends Schema.Schema.Type<typeof CreatedPet> {}

/** The pets of a page, as the body of `listPets` (SPEC §2 Pets). */
export const Pets = Schema.Array(Pet).check(Schema.isMaxLength(listLimit.maximum)).annotate({ identifier: "Pets" })

// oxlint-disable-next-line no-control-regex -- JSON requires escapes for control characters
const mayNeedEscapes = /["\\\u0000-\u001f\ud800-\udfff]/

const quote = (text: string): string => mayNeedEscapes.test(text) ? JSON.stringify(text) : `"${text}"`

/**
 * Hot path: writes the same JSON as the encoder of the schema. With that encoder, a list would allocate 43 % more
 * bytes, and a get would run 28 % more Effect operations (docs/performance.md).
 */
const petText = (pet: Pet): string => {
  // An object, so that the compiler requires each field of a pet.
  const text: { readonly [Field in keyof Pet]-?: string } = {
    id: `{"id":${pet.id}`,
    name: `,"name":${quote(pet.name)}`,
    categoryId: `,"categoryId":${pet.categoryId}`,
    status: pet.status === undefined ? "" : `,"status":${quote(pet.status)}`
  }
  return text.id + text.name + text.categoryId + text.status + "}"
}

const petsText = (pets: ReadonlyArray<Pet>): string => {
  let text = ""
  for (const pet of pets) text += text === "" ? petText(pet) : `,${petText(pet)}`
  return `[${text}]`
}

export const PetJson = exactJson(Pet, { encodeText: petText })
export const PetsJson = exactJson(Pets, { encodeText: petsText })

/** The query of `listPets` (SPEC §4.1). */
export const ListQuery = Schema.Struct({
  /** The maximum number of pets. The default is 20, the maximum 100. */
  limit: Schema.optionalKey(limit("Maximum number of pets returned.")),
  /** Only pets with this status. Without this filter, the page has pets with and without a status. */
  status: PetStatus.annotate({
    identifier: undefined,
    description: "Filters by availability status. Without it, the page has pets with and without a status."
  }).pipe(Schema.optionalKey),
  /** The position at which the page starts: `cursor` in `next` of the previous page. */
  cursor: Schema.optionalKey(Cursor.annotate({ examples: [idCursors.encode(0n)] }))
})
export interface ListQuery extends Schema.Schema.Type<typeof ListQuery> {}

/** A page of pets. The last page has no `next`. */
export const PetsPage = Schema.Struct({
  /** The pets of the page, by ascending id. */
  pets: Pets,
  /** The query for the next page, if there is one. */
  next: Schema.optionalKey(ListQuery)
}).annotate({ description: "The pets of the page, by ascending id." })
export interface PetsPage extends Schema.Schema.Type<typeof PetsPage> {}

const listPets = HttpApiEndpoint.get("listPets", "/pets", {
  query: ListQuery.fields,
  success: pageResponse(PetsPage, {
    body: PetsJson,
    path: "/v1/pets",
    query: ListQuery,
    decode: ({ items: pets, ...rest }) => ({ pets, ...rest }),
    encode: ({ pets: items, ...rest }) => ({ items, ...rest })
  }),
  error: [...commonErrors]
}).pipe(inOrder(...operationSteps)).annotateMerge(
  OpenApi.annotations({ summary: "List pets", description: "Returns a page of the pets, by ascending id." })
)

const createPet = HttpApiEndpoint.post("createPet", "/pets", {
  headers: createHeaders("pet"),
  payload: exactJson(NewPet, { rejectsNearMisses: true }),
  success: createdResponse(CreatedPet, {
    body: PetJson,
    noun: "pet",
    path: "/v1/pets",
    decode: ({ item: pet, isReplay }) => ({ pet, isReplay }),
    encode: ({ isReplay, pet: item }) => ({ item, isReplay })
  }),
  error: [errorResponse(Errors.IdempotencyKeyReused), ...commonErrors]
}).pipe(inOrder(...bodySteps)).annotateMerge(
  OpenApi.annotations({ summary: "Create a pet", description: "Creates a pet and returns it with its id." })
)

// Runs `Auth`, `RateLimit` (`PetstoreApi.ts`), `ConcurrencyLimit`, `Validation` and `Sunset`, in this order.
const getPet = HttpApiEndpoint.get("getPet", "/pets/:petId", {
  params: { petId: int64("Identifier of the pet.", 1) },
  success: PetJson.annotate({ description: "The pet." }),
  error: [errorResponse(Errors.NotFound), ...commonErrors]
})
  .pipe(inOrder(...operationSteps, Sunset))
  .annotateMerge(deprecate(new Date("2026-11-21T00:00:00Z"), new Date("2030-12-05T00:00:00Z"), "/v1/pets", "/docs"))
  .annotateMerge(OpenApi.annotations({
    summary: "Get a pet",
    description: "Will be removed on 5 December 2030. Use `GET /pets` instead, with or without the `status` filter."
  }))

export class PetsGroup extends HttpApiGroup.make("pets", { topLevel: true })
  .add(listPets, createPet, getPet)
  .annotate(OpenApi.Description, "The pets held in the store.")
{}
