/** Names the command, and prefixes metrics, span attributes, Redis keys and the migrations table. */
export const name = "petstore"
export const title = "Petstore"

/** The resource in examples and links. `GET /v1/<collection>` lists it, and its table has this name. */
export const collection = "pets"

export const [keyPrefix, adminTokenPrefix] = ["psk_", "adm_"]
