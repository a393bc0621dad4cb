/** The entry `petstore-client`. */
export * from "./api/entry.ts"
export * from "./client/Clients.ts"
