/** The names under which clients and operators know the service. */

/** The command, and the prefix of metrics, span attributes, the table of migrations and the keys in Redis. */
export const name = "petstore"
export const title = "Petstore"

/** The collection that examples and links name. `GET /v1/<collection>` lists it, and its table has the same name. */
export const collection = "pets"

export const [keyPrefix, adminTokenPrefix] = ["psk_", "adm_"]
