/** Finds the master that Redis Sentinel names. */
import { Effect, Latch, Schema } from "effect"
import type { Redis } from "effect/persistence"
import { type Address, isSame, type RedisUrl } from "../../config/RedisUrl.ts"
import * as RedisClient from "./RedisClient.ts"

const pollInterval = { up: "1 second", down: "250 millis" } as const
const replyTimeout = "1 second"
const pauseBetweenAttempts = "250 millis"

/** The master that a sentinel names. The epoch grows with each failover. */
interface Answer {
  readonly master: Address
  readonly epoch: number
}

const decodeMaster = Schema.decodeUnknownEffect(Schema.Struct({ "config-epoch": Schema.FiniteFromString }))
const decodeAddress = Schema.decodeUnknownEffect(Schema.Tuple([Schema.String, Schema.FiniteFromString]))

/** Asks a sentinel. The epoch is read first, so that it is never newer than the address. */
const ask = Effect.fnUntraced(function*({ send }: Redis.Redis["Service"], masterName: string) {
  const { "config-epoch": epoch } = yield* Effect.flatMap(send("SENTINEL", "MASTER", masterName), decodeMaster)
  const reply = yield* send("SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName)
  const [host, port] = yield* decodeAddress(reply)
  return { epoch, master: { host, port } }
})

/**
 * Polls all sentinels until the scope closes. Of different masters, the one of the newest epoch counts: a sentinel that
 * restarts can name an old master.
 */
export const make = Effect.fnUntraced(function*(
  url: RedisUrl,
  { isUp, onChange }: {
    /** Whether the master is up. While it is down, the sentinels are polled more often. */
    readonly isUp: () => boolean
    /** Runs when the sentinels name another master. */
    readonly onChange: (master: Address) => void
  }
) {
  const { addresses, masterName } = url
  /** The last reply of each sentinel, also of one that no longer replies. */
  const answers = new Map<Address, Answer>()
  let error: unknown
  let master: Address | undefined
  const isKnown = Latch.makeUnsafe(false)

  const setMaster = (): void => {
    let newest: Answer | undefined
    for (const answer of answers.values()) {
      const isPresent = isSame(answer.master, master)
      if (newest === undefined || answer.epoch > newest.epoch || answer.epoch === newest.epoch && isPresent) {
        newest = answer
      }
    }
    if (newest === undefined || isSame(newest.master, master)) return
    master = newest.master
    isKnown.openUnsafe()
    onChange(master)
  }

  const watch = (sentinel: Address) =>
    Effect.gen(function*() {
      const { client, redis } = yield* RedisClient.open(url, sentinel, "sentinel")
      yield* Effect.addFinalizer(() => Effect.sync(() => client.isOpen && client.destroy()))
      client.on("error", () => {})
      const poll = Effect.gen(function*() {
        answers.set(sentinel, yield* Effect.timeout(ask(redis, masterName), replyTimeout))
        setMaster()
        yield* Effect.sleep(isUp() ? pollInterval.up : pollInterval.down)
      })
      return yield* Effect.forever(poll)
    }).pipe(
      Effect.scoped,
      Effect.catch((cause) =>
        Effect.sync(() => {
          error = cause
        })
      ),
      Effect.andThen(Effect.sleep(pauseBetweenAttempts))
    )
  for (const sentinel of addresses) yield* Effect.forkScoped(Effect.forever(watch(sentinel)))

  return {
    /** Returns the master. It waits for the first reply, for one second at most. */
    master: Effect.suspend(() =>
      master !== undefined ? Effect.succeed(master) : isKnown.await.pipe(
        Effect.timeoutOption("1 second"),
        Effect.flatMap(() =>
          master !== undefined
            ? Effect.succeed(master)
            : Effect.fail(
              new RedisClient.RedisDown({
                cause: new Error(`No sentinel names the master ${masterName}`, { cause: error })
              })
            )
        )
      )
    )
  }
})
