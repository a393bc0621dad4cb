/** Describes a table with ascending ids, and how its items are read, written and compared. Imports no SQL. */
import { type Schema, Struct } from "effect"
import type { OutageErrors } from "../database/Deadline.ts"

/** How a field is stored. Unless `isOptional` is true, the column in SQL must be `NOT NULL`. */
export interface Column<Value> {
  /** The column's name in SQL. */
  readonly name: string
  /** The SQL type, such as `text`. */
  readonly type: string
  readonly isOptional: boolean
  /** Converts a value of the column, as the driver returns it, to a value of the field. Throws if it is invalid. */
  readonly read: (stored: unknown) => Value
  /** Converts a value of the field to JSON, whose text PostgreSQL casts to `type`. */
  readonly write: (value: Value) => Schema.Json
}

/**
 * One column for each field. A missing column, or one whose values differ in type from those of its field, does not
 * compile.
 */
export type Columns<New> = { readonly [Field in keyof New]-?: Column<New[Field]> }

/** A stored item. */
export type Item<New> = {
  /** The identifier. Ids are assigned in ascending order. */
  readonly id: bigint
} & New

/** The values that a list filters by. */
export type Filters<New, Filter extends keyof New> = { readonly [Field in Filter]?: New[Field] | undefined }

export interface Table<New extends object, Filter extends keyof New, Reused, Unavailable> {
  /** The table's name in SQL. */
  readonly name: string
  readonly columns: Columns<New>
  /**
   * The fields that a list can filter by. Each must have few values: a value is a literal in the SQL, so each value
   * makes another prepared statement.
   */
  readonly filters: ReadonlyArray<Filter>
  /** The failure of a create whose idempotency key created a different item earlier. */
  readonly keyReused: Reused
  /** The failures of operations that need the database, during an outage. */
  readonly errors: OutageErrors<Unavailable>
  /** The maximum number of cached items. */
  readonly maxCached: number
  /**
   * How many seconds a process may serve an item from its cache, if that is less than `SqlCollection.layer` allows. Set
   * 1 for a table whose items change: no process hears of the changes of another.
   */
  readonly cacheSeconds?: number
  /** Whether to cache an item. By default, all items are cached. */
  readonly isCached?: (item: New) => boolean
  /**
   * Returns the same text for equal items, and different texts for different items: an idempotency key is stored with
   * the hash of the text, which tells a replay from another create. By default, the text contains the table's name, so
   * that a key of one table never returns an item of another.
   */
  readonly canonicalText?: (written: Readonly<Record<string, Schema.Json>>) => string
}

const invalid = (name: string): never => {
  throw new Error(`The database returned an invalid value of the column ${name}`)
}

export const text = (name: string): Column<string> => ({
  name,
  type: "text",
  isOptional: false,
  read: (stored) => typeof stored === "string" ? stored : invalid(name),
  write: (value) => value
})

export const int64 = (name: string): Column<bigint> => ({
  name,
  type: "bigint",
  isOptional: false,
  read: (stored) => typeof stored === "bigint" ? stored : invalid(name),
  write: String
})

/** A text column with few values. All cached items share one string for each value, which saves memory. */
export const oneOf = <Value extends string>(name: string, values: ReadonlyArray<Value>): Column<Value> => {
  const shared = new Map<unknown, Value>(values.map((value) => [value, value]))
  return { name, type: "text", isOptional: false, read: (stored) => shared.get(stored) ?? invalid(name), write: String }
}

/** A column that can be `NULL`. If it is, the item lacks the field. */
export const optional = <Value extends {}>(column: Column<Value>): Column<Value | undefined> => ({
  ...column,
  isOptional: true,
  read: (stored) => stored === null ? undefined : column.read(stored),
  write: (value) => value === undefined ? null : column.write(value)
})

const matchesAll = (): boolean => true

/** Items by column: for each field, an array with the values of all items, as the driver returns them. */
export type Arrays = Readonly<Record<string, ReadonlyArray<unknown>>>

/** Returns the columns of a table, and functions that convert its items from and to them, and that compare items. */
export const makeCodec = <New extends object, Filter extends keyof New, Reused, Unavailable>(
  table: Table<New, Filter, Reused, Unavailable>
) => {
  const { canonicalText, columns, name } = table
  const fields = Struct.keys(columns)

  const isComplete = (item: Partial<New>): item is New =>
    fields.every((field) => item[field] !== undefined || columns[field].isOptional)

  const readItem = (arrays: Arrays, id: unknown, index: number): Item<New> => {
    const item: Partial<New> = {}
    for (const field of fields) {
      const value = columns[field].read(arrays[field]?.[index])
      if (value !== undefined) item[field] = value
    }
    return typeof id === "bigint" && isComplete(item) ? { id, ...item } : invalid("id")
  }

  /** Returns the JSON of each field that is not absent. */
  const write = (item: New): Readonly<Record<string, Schema.Json>> => {
    const written: Record<string, Schema.Json> = {}
    for (const field of fields) {
      if (item[field] !== undefined) written[field] = columns[field].write(item[field])
    }
    return written
  }

  const toText = canonicalText ??
    ((written: Readonly<Record<string, Schema.Json>>) =>
      JSON.stringify([name, ...Object.entries(written).toSorted(([a], [b]) => a < b ? -1 : 1)]))

  return {
    columns: fields.map((field) => ({ field, name: columns[field].name, type: columns[field].type })),
    readItems: (arrays: Arrays): ReadonlyArray<Item<New>> =>
      (arrays.id ?? []).map((id, index) => readItem(arrays, id, index)),
    write,
    /**
     * Equal items have equal texts, and different items have different ones. When an optional field is added to the
     * table, items without it keep their texts.
     */
    canonicalText: (item: New): string => toText(write(item)),
    /** Returns a function that tells whether an item passes the filters of a selection. */
    matcher: (selection: Filters<New, Filter>) => {
      const active = table.filters.filter((field) => selection[field] !== undefined)
      return active.length === 0
        ? matchesAll
        : (item: New): boolean => active.every((field) => item[field] === selection[field])
    }
  }
}
