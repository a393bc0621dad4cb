/**
 * The floor that commits: it creates pets as the service does, with nothing else. Concurrent creates are one statement
 * and one commit, through `pg`. It checks nothing.
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
  readonly added: (id: string, text: string) => void
}
let waiting: Array<Addition> = []
let isRunning = false

/** Runs one statement at a time. Creates that arrive meanwhile share the next. Two at once, or a pause, are slower. */
const addWaiting = async () => {
  if (isRunning) return
  isRunning = true
  while (waiting.length > 0) {
    const additions = waiting
    waiting = []
    const values = [`[${additions.map(({ body }) => body).join()}]`]
    const { rows } = await client.query<{ readonly id: string }>({ name: "add", text, values })
    for (const [nth, { added, body }] of additions.entries()) {
      const id = rows[nth]?.id ?? ""
      added(id, `{"id":${id},${body.slice(1)}`)
    }
  }
  isRunning = false
}

serve((body, added) => {
  waiting.push({ body, added })
  void addWaiting()
})
