/** The contract of categories, beside that of the pets. */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { createdResponse, createHeaders, idCursors, pageResponse } from "../../src/api/CollectionEndpoints.ts"
import * as Errors from "../../src/api/Errors.ts"
import { commonErrors, errorResponse } from "../../src/api/ErrorSchemas.ts"
import { inOrder } from "../../src/api/InOrder.ts"
import { exactJson, int64 } from "../../src/api/Int64.ts"
import { bodySteps, operationSteps } from "../../src/api/OperationMiddleware.ts"
import { Cursor, limit, listLimit } from "../../src/api/Paging.ts"
import { PetsGroup } from "../../src/api/Pets.ts"
import { makeApi } from "../../src/api/PetstoreApi.ts"
import { isStorable } from "../../src/api/TextSchemas.ts"

const path = "/v1/categories"

export const NewCategory = Schema.Struct({
  name: Schema.String.annotate({ description: "The category's name.", examples: ["Dogs"] })
    .check(isStorable, Schema.isMaxCodePoints(100, { expected: "a string of at most 100 characters" })),
  slug: Schema.String.annotate({ description: "The name of the category in a URL.", examples: ["dogs"] })
    .check(Schema.isPattern(/^[a-z0-9-]{1,50}$/u, { expected: "1 to 50 letters of a to z, digits and hyphens" }))
}).annotate({ identifier: "NewCategory" })
export interface NewCategory extends Schema.Schema.Type<typeof NewCategory> {}

export const Category = Schema.Struct({ id: int64("Identifier of the category.", 1), ...NewCategory.fields })
  .annotate({ identifier: "Category" })

/** A field that is absent keeps its value. */
export const CategoryChange = Schema.Struct({
  name: Schema.optionalKey(NewCategory.fields.name),
  slug: Schema.optionalKey(NewCategory.fields.slug)
}).annotate({ identifier: "CategoryChange" })

const Categories = Schema.Array(Category).check(Schema.isMaxLength(listLimit.maximum))
  .annotate({ identifier: "Categories" })

const ListQuery = Schema.Struct({
  limit: Schema.optionalKey(limit("Maximum number of categories returned.")),
  cursor: Schema.optionalKey(Cursor.annotate({ examples: [idCursors.encode(0n)] }))
})

const CategoriesPage = Schema.Struct({ items: Categories, next: Schema.optionalKey(ListQuery) })
  .annotate({ description: "The categories of the page, by ascending id." })
const CreatedCategory = Schema.Struct({ item: Category, isReplay: Schema.Boolean })
  .annotate({ description: "The created category, with its id." })

const CategoryJson = exactJson(Category).annotate({ description: "The category." })
const params = { categoryId: int64("Identifier of the category.", 1) }
const errorsOfOne = [errorResponse(Errors.NotFound), ...commonErrors] as const

const describe = (summary: string) => OpenApi.annotations({ summary, description: `${summary}.` })

export class CategoriesGroup extends HttpApiGroup.make("categories", { topLevel: true })
  .add(
    HttpApiEndpoint.get("listCategories", "/categories", {
      query: ListQuery.fields,
      success: pageResponse(CategoriesPage, {
        body: exactJson(Categories),
        path,
        query: ListQuery,
        decode: (page) => page,
        encode: (page) => page
      }),
      error: [...commonErrors]
    }).pipe(inOrder(...operationSteps)).annotateMerge(describe("List categories")),
    HttpApiEndpoint.post("createCategory", "/categories", {
      headers: createHeaders("category"),
      payload: exactJson(NewCategory, { rejectsNearMisses: true }),
      success: createdResponse(CreatedCategory, {
        body: CategoryJson,
        noun: "category",
        path,
        decode: (created) => created,
        encode: (created) => created
      }),
      error: [errorResponse(Errors.IdempotencyKeyReused), ...commonErrors]
    }).pipe(inOrder(...bodySteps)).annotateMerge(describe("Create a category")),
    HttpApiEndpoint.get("getCategory", "/categories/:categoryId", { params, success: CategoryJson, error: errorsOfOne })
      .pipe(inOrder(...operationSteps)).annotateMerge(describe("Get a category")),
    HttpApiEndpoint.patch("updateCategory", "/categories/:categoryId", {
      params,
      payload: exactJson(CategoryChange, { rejectsNearMisses: true }),
      success: CategoryJson,
      error: errorsOfOne
    }).pipe(inOrder(...bodySteps)).annotateMerge(describe("Change a category")),
    HttpApiEndpoint.delete("deleteCategory", "/categories/:categoryId", {
      params,
      success: HttpApiSchema.NoContent,
      error: errorsOfOne
    }).pipe(inOrder(...operationSteps)).annotateMerge(describe("Delete a category"))
  )
  .annotate(OpenApi.Description, "The categories.")
{}

export class ExampleApi extends makeApi(PetsGroup, CategoriesGroup) {}
