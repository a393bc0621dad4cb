/** The resources of this service: the pets, and the categories. */
import { Effect, Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Migrator, SqlClient } from "effect/sql"
import type { MakeStore } from "../../src/collection/Collection.ts"
import * as PetHandlers from "../../src/http/PetHandlers.ts"
import { PetRepository, pets } from "../../src/pets/PetRepository.ts"
import { Categories, categories } from "./Categories.ts"
import { ExampleApi } from "./CategoriesApi.ts"
import * as CategoryHandlers from "./CategoryHandlers.ts"

export const api = ExampleApi

export const routes = Layer.provide(HttpApiBuilder.layer(api), [PetHandlers.layer, CategoryHandlers.layer])

export const makeStores = <E, R>(make: MakeStore<E, R>) =>
  Layer.mergeAll(make(PetRepository, pets), make(Categories, categories))

const createCategories = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  sql`CREATE TABLE categories (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY CHECK (id > 0),
    name text NOT NULL CHECK (char_length(name) <= 100),
    slug text NOT NULL CHECK (char_length(slug) <= 50)
  )`)

/** Migrates the tables of this service, apart from those of the Petstore, whose versions have numbers of their own. */
export const migrate = Layer.effectDiscard(
  Migrator.make({})({
    loader: Migrator.fromRecord({ "0001_categories": createCategories }),
    table: "categories_migrations"
  })
)
