import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import * as CollectionHandlers from "../../src/http/CollectionHandlers.ts"
import { createItem, listPage, orNotFound } from "../../src/http/CollectionHandlers.ts"
import { Categories } from "./Categories.ts"
import { ExampleApi } from "./CategoriesApi.ts"

const group = HttpApiBuilder.group(
  ExampleApi,
  "categories",
  (handlers) =>
    Effect.map(Categories, (categories) =>
      handlers.handleAll({
        listCategories: ({ query }) => listPage(categories, query, {}),
        createCategory: ({ headers, payload }) => createItem(categories, payload, headers["idempotency-key"]),
        getCategory: ({ params: { categoryId } }) => orNotFound("category", categoryId, categories.find(categoryId)),
        updateCategory: ({ params: { categoryId }, payload }) =>
          orNotFound(
            "category",
            categoryId,
            categories.change(categoryId, (category) => ({ ...category, ...payload }))
          ),
        deleteCategory: ({ params: { categoryId } }) =>
          Effect.asVoid(orNotFound("category", categoryId, categories.change(categoryId, () => undefined)))
      }))
)

export const layer = CollectionHandlers.layer(Categories, group)
