/** The animals of the store: what they are (SPEC §2) and what can be done with them (SPEC §4). */
import { Effect, Schema, SchemaIssue, SchemaTransformation } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import * as Errors from "./Errors.ts"
import { Int64, jsonText } from "./Int64.ts"
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

/** How many animals a list may hold (SPEC §4.1, §8). */
export const listLimit = { minimum: 1, maximum: 100, default: 20 }

const expectedLimit = `an integer from ${listLimit.minimum} to ${listLimit.maximum}`

const limitDocumentation: Readonly<Record<string, unknown>> = {
  type: "integer",
  ...listLimit,
  description: "Maximum number of animals returned.",
  message: `Expected ${expectedLimit}`
}

const Limit = Schema.String.annotate(limitDocumentation).pipe(
  Schema.decodeTo(
    Schema.Int,
    SchemaTransformation.transformEffect({
      decode: (text, options) => {
        const limit = /^\d{1,3}$/.test(text) ? Number(text) : 0
        return limit >= listLimit.minimum && limit <= listLimit.maximum
          ? Effect.succeed(limit)
          : Effect.fail(new SchemaIssue.InvalidValue({ expected: expectedLimit }, text, options))
      },
      encode: (limit) => Effect.succeed(String(limit))
    })
  )
)

const petText = jsonText("Pet", Pet)

const listPets = HttpApiEndpoint.get("listPets", "/pets", {
  query: {
    limit: Schema.optionalKey(Limit),
    status: Schema.optionalKey(PetStatus)
  },
  success: jsonText("Pets", Pets).annotate({ description: "The animals, by ascending id." })
}).annotateMerge(OpenApi.annotations({ summary: "List animals", description: "Returns a paginated list of animals." }))

const createPet = HttpApiEndpoint.post("createPet", "/pets", {
  payload: jsonText("NewPet", NewPet),
  success: petText.pipe(HttpApiSchema.status(201)).annotate({ description: "The created animal." })
}).annotateMerge(OpenApi.annotations({ summary: "Add an animal" }))

const getPet = HttpApiEndpoint.get("getPet", "/pets/:petId", {
  params: { petId: Int64 },
  success: petText.annotate({ description: "The animal." }),
  error: Errors.response(Errors.NotFound)
}).annotateMerge(OpenApi.annotations({
  summary: "Get an animal",
  description: "Will be removed on 5 December 2030. Use `GET /pets` with the `status` filter instead.",
  deprecated: true
}))

export class PetsGroup extends HttpApiGroup.make("pets", { topLevel: true })
  .add(listPets, createPet, getPet)
  .annotateMerge(OpenApi.annotations({ description: "The animals held in the store." }))
{}
