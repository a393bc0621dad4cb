/** The name of the command, and the prefix of metrics, span attributes, Redis keys and the migrations table. */
export const name = "petstore"
export const title = "Petstore"

/** The name of the pets' table, and the last segment of the API's path in examples and links (`/v1/pets`). */
export const collection = "pets"

/** The base path of each API: of clients on the API port, and of operators on the management port. */
export const basePaths = { api: "/v1", admin: "/admin" } as const

export const [keyPrefix, adminTokenPrefix] = ["psk_", "adm_"]
