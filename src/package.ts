/** The entry `petstore-client`: both clients and the contract. */
export * from "./api/entry.ts"
export * from "./client/Clients.ts"
