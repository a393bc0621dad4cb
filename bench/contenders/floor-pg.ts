/**
 * The floor of what lasts: it checks nothing, and adds animals as the service does, those that come together in one
 * statement and one commit, through `pg`.
 */
import { Client } from "pg"
import { serve } from "./floor.ts"
import * as Shared from "./shared.ts"

const text = `
  WITH added AS MATERIALIZED (
    SELECT nextval((SELECT pg_get_serial_sequence('pets', 'id')::regclass)) AS id, pet, nth
    FROM jsonb_array_elements($1::text::jsonb) WITH ORDINALITY AS asked (pet, nth)
  ), inserted AS (
    INSERT INTO pets (id, name, category_id, status)
    SELECT id, pet->>'name', (pet->>'categoryId')::bigint, pet->>'status' FROM added
  )
  SELECT id FROM added ORDER BY nth`

const client = new Client({ connectionString: Shared.databaseUrl })
await client.connect()

interface Addition {
  readonly body: string
  readonly added: (id: number, text: string) => void
}
let waiting: Array<Addition> = []
let isRunning = false

const addWaiting = async () => {
  isRunning = true
  while (waiting.length > 0) {
    // All of this turn of the event loop.
    await new Promise(setImmediate)
    const additions = waiting
    waiting = []
    const values = [`[${additions.map(({ body }) => body).join()}]`]
    const { rows } = await client.query<{ readonly id: string }>({ name: "add", text, values })
    for (const [nth, { added, body }] of additions.entries()) {
      const id = Number(rows[nth]?.id)
      const pet: Shared.NewPet = JSON.parse(body)
      added(id, JSON.stringify({ id, ...pet }))
    }
  }
  isRunning = false
}

serve((body, added) => {
  waiting.push({ body: body.toString(), added })
  if (!isRunning) void addWaiting()
})
