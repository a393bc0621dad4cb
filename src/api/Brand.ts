/** The name of the command, and the prefix of metrics, span attributes, Redis keys and the migrations table. */
export const name = "petstore"
export const title = "Petstore"

/** The name of the API's resource in its path (`/v1/<collection>`) and its table. Examples and links use this path. */
export const collection = "pets"

export const [keyPrefix, adminTokenPrefix] = ["psk_", "adm_"]
