/** Tests what the client of Redis sends to a server, sentinel or node of a cluster, which replies as Redis does. */
import { assert, it } from "@effect/vitest"
import { ConfigProvider, Context, Effect, Exit, Layer, Scope } from "effect"
import { once } from "node:events"
import { createServer, type Socket } from "node:net"
import { redisOptions } from "../../src/config/RedisSettings.ts"
import { RedisClient } from "../../src/rate-limit/RedisClient.ts"
import { runCommand } from "../../src/rate-limit/RedisScript.ts"
import { readPage } from "../support/Documents.ts"
import { until } from "../support/Process.ts"
import { freePort } from "../support/Temporary.ts"

const bulk = (text: string | number) => `$${String(text).length}\r\n${text}\r\n`
const array = (...items: ReadonlyArray<string>) => `*${items.length}\r\n${items.join("")}`

/** The state that a script returns: 1 to 9. */
const state = array(...[1, 2, 3, 4, 5, 6, 7, 8, 9].map((number) => `:${number}\r\n`))

/** Returns the first command of a text, and the text after it. Without a whole command, returns `undefined`. */
const takeCommand = (text: string) => {
  const [whole = "", count, values = ""] = /^\*(\d+)\r\n((?:\$\d+\r\n[^\r\n]*\r\n)*)/.exec(text) ?? []
  const command = values.split("\r\n").filter((_, index) => index % 2 === 1)
  return command.length === Number(count) ? { command, rest: text.slice(whole.length) } : undefined
}

/** Serves a port. The server also replies as a sentinel of the master `pets`, and as a cluster of one node. */
const serve = Effect.gen(function*() {
  const port = yield* freePort
  const seen = { commands: new Array<string>(), firstBytes: new Array<number | undefined>() }
  const replyTo = (command: ReadonlyArray<string>): string => {
    const [name = "", part = ""] = command
    switch (`${name} ${part}`.toUpperCase()) {
      case "HELLO 3":
        return `%1\r\n${bulk("server")}${bulk("redis")}`
      case "CLUSTER SLOTS":
        return array(array(":0\r\n", ":16383\r\n", array(bulk("127.0.0.1"), `:${port}\r\n`, bulk("id"))))
      case "SENTINEL MASTER":
        return `%3\r\n${["ip", "127.0.0.1", "port", port, "flags", "master"].map(bulk).join("")}`
      case "SENTINEL REPLICAS":
      case "SENTINEL SENTINELS":
        return array()
    }
    if (name === "EVALSHA") return state
    return name === "psubscribe"
      ? command.slice(1).map((pattern, index) => `>3\r\n${bulk(name)}${bulk(pattern)}:${index + 1}\r\n`).join("")
      : "+OK\r\n"
  }
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket.on("error", () => {}))
    socket.once("data", (bytes: Buffer) => seen.firstBytes.push(bytes[0]))
    let received = ""
    socket.on("data", (bytes: Buffer) => {
      received += bytes.toString("latin1")
      for (let taken = takeCommand(received); taken !== undefined; taken = takeCommand(received)) {
        received = taken.rest
        seen.commands.push(taken.command.join(" "))
        socket.write(replyTo(taken.command))
      }
    })
  })
  yield* Effect.acquireRelease(
    Effect.promise(() => once(server.listen(port, "127.0.0.1"), "listening")),
    () =>
      Effect.sync(() => {
        server.close()
        for (const socket of sockets) socket.destroy()
      })
  )
  return { port, seen }
})

/**
 * The client of the URL, of which `PORT` is that of the server. It closes in the background, because the close waits
 * for connections that are opening.
 */
const clientOf = Effect.fnUntraced(function*(url: string, port: number) {
  const scope = yield* Scope.make()
  yield* Effect.addFinalizer(() => Effect.forkDetach(Scope.close(scope, Exit.void)))
  const env = ConfigProvider.fromUnknown({ REDIS_URL: url.replace("PORT", String(port)) })
  const options = yield* Effect.provideService(redisOptions, ConfigProvider.ConfigProvider, env)
  const client = Context.get(yield* Layer.buildWithScope(RedisClient.layer(options), scope), RedisClient)
  client.onError(() => {})
  return client
})

/** The commands that a start and a charge send, without the hash of the script. */
const commandsOf = (url: string) =>
  Effect.gen(function*() {
    const { port, seen } = yield* serve
    const client = yield* clientOf(url, port)
    yield* client.connect
    const charge = { verb: "charge", requests: 2, limits: { perMinute: 5, perDay: 9 } } as const
    const reply = yield* Effect.promise(() => client.run("key:a", charge))
    assert.deepInclude(reply, { now: 1, state: { ...reply.state, minute: { used: 2, resetAt: 3 } } })
    return seen.commands.map((each) => each.replace(/ [\da-f]{40}/, ""))
  })

const script = "EVALSHA 1 petstore:limits:key:a charge 1 2 5 9"
const asUser = "HELLO 3 AUTH us@er p/w"
const ofSentinel = ["SENTINEL MASTER pets", "SENTINEL REPLICAS pets", "SENTINEL SENTINELS pets"]
const withUser = "us%40er:p%2Fw@127.0.0.1:PORT"
it.live.each<readonly [url: string, commands: ReadonlyArray<string>]>([
  ["redis://127.0.0.1:PORT", ["HELLO 3", script]],
  [`redis://${withUser}/3`, [asUser, script, "SELECT 3"]],
  [
    `redis+sentinel://${withUser}/pets/4?sentinel_username=s&sentinel_password=%26`,
    [asUser, "HELLO 3 AUTH s &", script, "SELECT 4", ...ofSentinel]
  ],
  [`redis+sentinel://${withUser}/pets`, ["HELLO 3", asUser, script, ...ofSentinel]],
  [`redis+cluster://${withUser}`, ["CLUSTER SLOTS", asUser, script]]
])(
  "Redis gets the user, the password and the database of REDIS_URL, and sentinels get their own: %s",
  ([url, expected]) =>
    Effect.map(commandsOf(url), (commands) => {
      const others = commands.filter((each) => !each.startsWith("psubscribe"))
      assert.sameMembers([...new Set(others)], [...expected])
    })
)

/** The permissions in a line of docs/redis.md, as the beginnings of commands. */
const permittedIn = (line: RegExp) =>
  (line.exec(readPage("docs/redis.md"))?.[1] ?? assert.fail()).replaceAll("|", " ").toUpperCase().split(" +")

it.live.each(["redis://127.0.0.1:PORT/1", "redis+sentinel://127.0.0.1:PORT/pets/1", "redis+cluster://127.0.0.1:PORT"])(
  "The client needs only the permissions that docs/redis.md names: %s",
  (url) =>
    Effect.map(commandsOf(url), (commands) => {
      const permitted = [
        ...permittedIn(/-@all \+(.*)/),
        ...url.startsWith("redis+sentinel") ? permittedIn(/&\* \+(.*)`/) : []
      ]
      const ofScript = [...runCommand.SCRIPT.matchAll(/call\("(\w+)"/g)].map(([, name]) => name)
      for (const each of [...commands, ...ofScript]) {
        assert.isTrue(permitted.some((name) => `${each} `.toUpperCase().startsWith(`${name} `)), each)
      }
    })
)

const secured = ["rediss://127.0.0.1:PORT", "rediss+sentinel://127.0.0.1:PORT/pets", "rediss+cluster://127.0.0.1:PORT"]
it.live.each(secured)("A connection of %s begins with a handshake of TLS", (url) =>
  Effect.gen(function*() {
    const { port, seen } = yield* serve
    const client = yield* clientOf(url, port)
    yield* Effect.forkScoped(Effect.ignore(client.connect))
    yield* until(() => seen.firstBytes.length > 0)
    assert.strictEqual(seen.firstBytes[0], 0x16)
  }))

it.live.each<readonly [url: string, name: string]>([
  ["redis://127.0.0.1:PORT", "Redis"],
  ["redis+sentinel://127.0.0.1:PORT/pets", "Redis"],
  ["redis+cluster://127.0.0.1:PORT", "127.0.0.1:PORT"]
])(
  "The circuit breaker of a caller is that of its master, which has a name in a cluster: %s",
  ([url, name]) =>
    Effect.gen(function*() {
      const { port } = yield* serve
      const client = yield* clientOf(url, port)
      yield* client.connect
      assert.strictEqual(client.serverOf("key:a"), name.replace("PORT", String(port)))
    })
)
