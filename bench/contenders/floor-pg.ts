/**
 * The committing floor: it creates pets in PostgreSQL, and checks nothing. Concurrent creates share one statement and one
 * commit, as in the service.
 */
import { Client } from "pg"
import { serve } from "./floor.ts"
import * as Shared from "./shared.ts"

const text = `
  WITH created AS MATERIALIZED (
    SELECT nextval((SELECT pg_get_serial_sequence('pets', 'id')::regclass)) AS id, pet, index
    FROM jsonb_array_elements($1::text::jsonb) WITH ORDINALITY AS sent (pet, index)
  ), inserted AS (
    INSERT INTO pets (id, name, category_id, status)
    SELECT id, pet->>'name', (pet->>'categoryId')::bigint, pet->>'status' FROM created
  )
  SELECT id FROM created ORDER BY index`

const client = new Client({ connectionString: Shared.databaseUrl })
await client.connect()

interface Create {
  readonly body: string
  readonly onCreated: (id: string, text: string) => void
}
let waiting: Array<Create> = []
let isRunning = false

/** Runs one statement at a time, for all creates that wait. Concurrent statements, or a pause before each, are slower. */
const createWaiting = async () => {
  if (isRunning) return
  isRunning = true
  while (waiting.length > 0) {
    const creates = waiting
    waiting = []
    const values = [`[${creates.map(({ body }) => body).join()}]`]
    const { rows } = await client.query<{ readonly id: string }>({ name: "create", text, values })
    for (const [index, { body, onCreated }] of creates.entries()) {
      const id = rows[index]?.id ?? ""
      onCreated(id, `{"id":${id},${body.slice(1)}`)
    }
  }
  isRunning = false
}

serve((body, onCreated) => {
  waiting.push({ body, onCreated })
  void createWaiting()
})
