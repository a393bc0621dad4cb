/** The contract, for those who derive clients and documents of their own from it. */
export { AdminApi } from "./api/AdminApi.ts"
export * as Errors from "./api/Errors.ts"
export { Int64 } from "./api/Int64.ts"
export { openApiDocument } from "./api/OpenApiDocument.ts"
export { NewPet, Pet, Pets, PetsPage, PetStatus } from "./api/Pets.ts"
export { PetstoreApi } from "./api/PetstoreApi.ts"
export { Limits, Plan, planLimits } from "./api/Plans.ts"
