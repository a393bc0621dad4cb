/** Declares the settings of HTTP middleware. This file is apart from `Settings.ts` because it needs nothing of Node. */
import { Option, Result } from "effect"
import { IpInterface, IpNetwork } from "effect/net"
import { list, wholeNumber } from "./Setting.ts"

export const trustedProxies = list(
  "TRUSTED_PROXIES",
  "IP addresses and networks (CIDR), separated by commas",
  (entry) =>
    Option.map(Result.getSuccess(IpInterface.fromString(entry, { prefix: "optional" })), IpNetwork.fromInterface),
  "The proxies whose `X-Forwarded-For` the service trusts. It reads the header from the right."
)

export const corsOrigins = list(
  "CORS_ORIGINS",
  "origins like https://shop.example, separated by commas, or *",
  Option.liftPredicate((entry: string) => entry === "*" || URL.parse(entry)?.origin === entry),
  "The origins whose pages may call the API from a browser. `*` allows all."
)

export const keepAliveSeconds = wholeNumber("KEEP_ALIVE_SECONDS", { min: 1, max: 3_600 }, {
  byDefault: 65,
  meaning: "The time for which an idle connection stays open, in seconds. " +
    "It must be longer than a balancer in front keeps its idle connections."
})

export const maxConnections = wholeNumber("MAX_CONNECTIONS", { min: 1, max: 1_000_000 }, {
  byDefault: 10_000,
  meaning: "The maximum of open connections of each port. More connections are closed at once."
})
