/** The service's name in lower case: for example the name of the command, and the prefix of its keys in Redis. */
export const name = "petstore"
export const title = "Petstore"

/** The name of the table of pets, and the path segment after `/v1` in links and in the `curl` example (`/v1/pets`). */
export const collection = "pets"

/** The base paths: `api` for clients, on the API port, and `admin` for operators, on the management port. */
export const basePaths = { api: "/v1", admin: "/admin" } as const

export const [keyPrefix, adminTokenPrefix] = ["psk_", "adm_"]
