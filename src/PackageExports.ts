export * from "./api/ApiExports.ts"
export * from "./client/ClientExports.ts"
