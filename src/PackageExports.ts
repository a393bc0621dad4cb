/** Entry point of the package `petstore-client`. */
export * from "./api/ApiExports.ts"
export * from "./client/ClientExports.ts"
