/**
 * The statements of a process of schema version 2, as its connections sent them. They keep working on the newest
 * schema, so that processes can be replaced one after the other (docs/upgrade.md).
 */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import { SqlClient } from "effect/sql"
import { databaseNames } from "../../src/config/RoomOptions.ts"
import { newestVersion, runMigrations } from "../../src/database/Database.ts"
import growth from "../../src/database/migrations/0003_growth.ts"
import {
  clientOn,
  databaseAt,
  databases,
  describeOnEach,
  hasServer,
  temporaryDatabaseUrl
} from "../support/Databases.ts"
import { codeBlocks, readPage } from "../support/Documents.ts"

const now = "2026-11-28T18:37:28.000Z"
const tomorrow = "2026-11-29T18:37:28.000Z"
const hash = "4b3e55b5769feed2aa30acca5a47b0c31bba28c3542e75b4250e5bbd98f43b1d"
const request = "66582391c8dc5fa823fcc13197b1991b1f9291bf1bed7c842e17906c9ec6d2ba"
const used = JSON.stringify([{ keyId: "key_a", hash, at: now }])
const pets = JSON.stringify([
  [{ name: "a", categoryId: "1", status: "sold" }, "key_a", "order-1", request],
  [{ name: "b", categoryId: "1", status: "sold" }]
])

const page = (where: string) =>
  `SELECT page::int, found.* FROM unnest($1::text::bigint[]) WITH ORDINALITY AS asked (after, page) CROSS JOIN LATERAL (
  SELECT array_agg("name") AS "name", array_agg("category_id") AS "categoryId", array_agg("status") AS "status",
    array_agg(id) AS id FROM (SELECT * FROM "pets" WHERE ${where}) AS "pet" HAVING count(*) > 0) AS found`

const deletion = (table: string, column: string) =>
  `DELETE FROM "${table}" WHERE ctid = ANY (ARRAY(SELECT ctid FROM "${table}"
  WHERE "${column}" <= LEAST($1::timestamptz, now()) - make_interval(secs => $2) LIMIT $3 FOR UPDATE SKIP LOCKED
)) RETURNING 1`

/** The statements in an order in which a process sends them, with how many rows each returns. */
const statements: ReadonlyArray<readonly [rows: number, statement: string, ...values: ReadonlyArray<unknown>]> = [
  [0, "SELECT caller, state FROM rate_limits WHERE caller > $1 ORDER BY caller LIMIT 50000", ""],
  [
    1,
    `INSERT INTO api_keys (id, name, hint, plan, per_minute, per_day, created_at, expires_at, idempotency_key)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (idempotency_key) DO NOTHING RETURNING 1`,
    "key_a",
    "a",
    "p8Lw",
    "free",
    60,
    1_000,
    now,
    null,
    null
  ],
  [0, "INSERT INTO api_key_secrets (hash, key_id) VALUES (decode($1, 'hex'), $2)", hash, "key_a"],
  [
    0,
    `INSERT INTO audit_log (at, action, key_id, operator, address, before, after)
    SELECT at, action, "keyId", operator, address, before, after FROM jsonb_to_recordset($1::text::jsonb) AS t
    (at timestamptz, action text, "keyId" text, operator text, address text, before jsonb, after jsonb)`,
    JSON.stringify([{
      at: now,
      action: "issue",
      keyId: "key_a",
      operator: "admin",
      before: null,
      after: { name: "a" }
    }])
  ],
  [
    1,
    `SELECT encode(s.hash, 'hex') AS hash, k.id, k.plan, k.per_minute AS "perMinute", k.per_day AS "perDay", k.enabled,
    k.expires_at AS "expiresAt", k.revoked_at AS "revokedAt",
    CASE WHEN s.is_ended THEN to_timestamp(0) ELSE s.expires_at END AS "endsAt" FROM api_key_secrets s
    JOIN api_keys k ON k.id = s.key_id
    WHERE s.hash IN (SELECT decode(h, 'hex') FROM jsonb_array_elements_text($1::text::jsonb) h)`,
    JSON.stringify([hash])
  ],
  [
    2,
    `WITH creates AS MATERIALIZED (
      SELECT nextval((SELECT pg_get_serial_sequence('"pets"', 'id')::regclass)) AS id, index, item->0 AS "pet",
        item->>1 AS owner, item->>2 AS key, decode(item->>3, 'hex') AS request
      FROM jsonb_array_elements($1::text::jsonb) WITH ORDINALITY AS elements (item, index)
    ), claimed AS (
      INSERT INTO idempotency_keys AS existing (owner, key, request, pet_id, expires_at)
      SELECT owner, key, request, id, $2::timestamptz FROM creates WHERE key IS NOT NULL
      ORDER BY owner COLLATE "C", key COLLATE "C" ON CONFLICT (owner, key) DO UPDATE SET
        request = CASE WHEN existing.expires_at <= $3 THEN excluded.request ELSE existing.request END,
        pet_id = CASE WHEN existing.expires_at <= $3 THEN excluded.pet_id ELSE existing.pet_id END,
        expires_at = CASE WHEN existing.expires_at <= $3 THEN excluded.expires_at ELSE existing.expires_at END
      RETURNING owner, key, request, pet_id
    ), decided AS MATERIALIZED (
      SELECT creates.*, claimed.request AS claimed_request, claimed.pet_id FROM creates
      LEFT JOIN claimed ON claimed.owner = creates.owner AND claimed.key = creates.key
    ), inserted AS (
      INSERT INTO "pets" (id, "name", "category_id", "status") OVERRIDING SYSTEM VALUE
      SELECT id, ("pet"->>'name')::text, ("pet"->>'categoryId')::bigint, ("pet"->>'status')::text
      FROM decided WHERE key IS NULL OR pet_id = id
    ) SELECT COALESCE(pet_id, id) AS id, pet_id <> id AS "isReplay",
      encode(NULLIF(claimed_request, request), 'hex') AS "otherHash" FROM decided ORDER BY index`,
    pets,
    tomorrow,
    now
  ],
  [1, page("id > after ORDER BY id LIMIT 21"), "{0}"],
  [
    1,
    page("(status, id) > ($2, after) AND (status, id) <= ($2, $3) ORDER BY status, id LIMIT 21"),
    "{0}",
    "sold",
    "9223372036854775807"
  ],
  [
    0,
    `INSERT INTO rate_limits (caller, state, ends_at) SELECT caller, state, to_timestamp(ends_at / 1000)
    FROM jsonb_to_recordset($1::text::jsonb) AS t (caller text, state jsonb, ends_at float8)
    ON CONFLICT (caller) DO UPDATE SET state = excluded.state, ends_at = excluded.ends_at`,
    JSON.stringify([{ caller: "key:key_a", state: {}, ends_at: Date.parse(tomorrow) }])
  ],
  [
    0,
    `INSERT INTO key_usage (key_id, seconds, starts_at, allowed, rejected, banned)
    SELECT "keyId", seconds, starts_at, sum(allowed), sum(rejected), sum(banned) FROM jsonb_to_recordset($1::text::jsonb)
    AS t ("keyId" text, minute bigint, allowed bigint, rejected bigint, banned bigint)
    CROSS JOIN (VALUES ($2::int), ($3::int)) AS r (seconds)
    CROSS JOIN LATERAL (SELECT to_timestamp(minute / 1000 / seconds * seconds)) AS s (starts_at)
    GROUP BY "keyId", seconds, starts_at ORDER BY "keyId", seconds, starts_at
    ON CONFLICT (key_id, seconds, starts_at) DO UPDATE SET allowed = key_usage.allowed + excluded.allowed,
      rejected = key_usage.rejected + excluded.rejected, banned = key_usage.banned + excluded.banned`,
    JSON.stringify([{ keyId: "key_a", minute: Date.parse(now), allowed: 1, rejected: 0, banned: 0 }]),
    60,
    3_600
  ],
  ...["api_keys k SET last_used_at = u.at", "api_key_secrets s SET last_used_at = u.at"].map((change, index) =>
    [
      0,
      `UPDATE ${change} FROM (SELECT u.hash, k.id, GREATEST(u.at, k.created_at) AS at
      FROM jsonb_to_recordset($1::text::jsonb) AS u (hash text, "keyId" text, at timestamptz(3))
      JOIN api_keys k ON k.id = u."keyId") u WHERE ${index === 0 ? "k.id = u.id" : "s.hash = decode(u.hash, 'hex')"}`,
      used
    ] as const
  ),
  [
    1,
    `SELECT k.id, k.version, k.name, k.hint, k.plan, k.enabled,
    json_build_object('perMinute', k.per_minute, 'perDay', k.per_day) AS limits, k.created_at AS "createdAt",
    k.expires_at AS "expiresAt", k.revoked_at AS "revokedAt", k.last_used_at AS "lastUsedAt"
    FROM api_keys k WHERE id = $1 FOR NO KEY UPDATE`,
    "key_a"
  ],
  [
    0,
    `UPDATE api_key_secrets SET expires_at = LEAST(expires_at, $1), is_ended = is_ended OR $2
    WHERE key_id = $3 AND (expires_at IS NOT NULL OR $4)`,
    tomorrow,
    false,
    "key_a",
    true
  ],
  [
    0,
    `UPDATE api_keys SET version = $1, name = $2, hint = $3, plan = $4, per_minute = $5, per_day = $6, enabled = $7,
    expires_at = $8, revoked_at = $9 WHERE id = $10`,
    2,
    "a",
    "qCdU",
    "free",
    60,
    1_000,
    true,
    null,
    null,
    "key_a"
  ],
  ...[
    ["audit_log", "at"],
    ["idempotency_keys", "expires_at"],
    ["api_key_secrets", "expires_at"],
    ["rate_limits", "ends_at"],
    ["key_usage", "starts_at"]
  ].map(([table = "", column = ""]) => [0, deletion(table, column), now, 400 * 86_400, 5_000] as const)
]

it.live.skipIf(!hasServer)("No process starts on a newer schema, also with MIGRATE=off", () =>
  Effect.gen(function*() {
    const url = yield* temporaryDatabaseUrl
    const version = newestVersion + 1
    const migrated = Effect.flatMap(SqlClient.SqlClient, (sql) =>
      Effect.andThen(
        sql`CREATE TABLE petstore_migrations (migration_id int, created_at timestamptz DEFAULT now(), name text)`,
        sql`INSERT INTO petstore_migrations VALUES (${version}, now(), 'later')`
      ))
    yield* Effect.provide(migrated, clientOn(url))
    for (const MIGRATE of ["on", "off"]) {
      const failure = yield* Effect.flip(Effect.scoped(Layer.build(Layer.fresh(databaseAt(url, { MIGRATE })))))
      assert.deepInclude(failure, { _tag: "DatabaseIsNewer", version }, MIGRATE)
      assert.include(readPage("docs/upgrade.md"), `\`\`\`text\n${failure.message}\n\`\`\``)
    }
  }))

it("The migration to schema version 3 builds the indexes of docs/upgrade.md, unless operators have built them", () => {
  const indexes = growth.filter((statement) => statement.startsWith("CREATE INDEX IF NOT EXISTS "))
  const page = codeBlocks(readPage("docs/upgrade.md")).find(({ language }) => language === "sql")
  const documented = page?.code.trim().replaceAll("INDEX CONCURRENTLY", "INDEX").replaceAll(";", "").split("\n")
  assert.deepStrictEqual(indexes, documented)
})

describeOnEach(databases, "A process of schema version 2", (it) => {
  it.effect("finds every table and column on the newest schema", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      for (const [rows, statement, ...values] of statements) {
        assert.lengthOf(yield* sql.unsafe(statement, values), rows, statement)
      }
    }))

  it.effect("is upgraded by a migration whose name is logged before it runs", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const log: Array<string> = []
      const migrate = Effect.gen(function*() {
        yield* sql`DELETE FROM petstore_migrations WHERE migration_id = ${newestVersion}`
        return yield* Effect.exit(runMigrations(databaseNames))
      })
      // The changes of the migration exist, so it fails, and the transaction is rolled back.
      const failed = yield* Effect.flip(sql.withTransaction(Effect.flatMap(migrate, (exit) => Effect.fail(exit)))).pipe(
        Effect.provide(Logger.layer([Logger.make(({ message }) => void log.push(String(message)))]))
      )
      assert.include(String(failed), "already exists")
      const logged = log.filter((line) => line.startsWith("Migrating"))
      assert.match(logged.join("\n"), new RegExp(`^Migrating the database: 000${newestVersion}_\\w+$`))
    }))

  it.effect("keeps its index of pets by status in the migration of more than 100,000 pets", () =>
    Effect.flatMap(SqlClient.SqlClient, (sql) =>
      sql.withTransaction(Effect.gen(function*() {
        const keepsIndex = Effect.gen(function*() {
          yield* sql`CREATE INDEX pets_status_id ON pets (id) WHERE id < 0`
          yield* sql.unsafe(growth.at(-1) ?? assert.fail())
          return (yield* sql`SELECT FROM pg_indexes WHERE indexname = 'pets_status_id'`).length > 0
        })
        // A temporary table hides that of the schema, whose inserts would take seconds.
        yield* sql`CREATE TEMP TABLE pets ON COMMIT DROP AS SELECT id FROM generate_series(1, 100000) AS id`
        assert.isFalse(yield* keepsIndex)
        yield* sql`INSERT INTO pets VALUES (100001)`
        assert.isTrue(yield* keepsIndex)
      }))))
})
