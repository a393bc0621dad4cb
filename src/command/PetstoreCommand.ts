/** The tree of subcommands. */
import { Command } from "effect/cli"
import { adminClientLayer } from "./AdminConnection.ts"
import { usage } from "./KeyHistory.ts"
import { issue } from "./KeyIssue.ts"
import { list } from "./KeyList.ts"
import { log } from "./KeyLog.ts"
import { revoke } from "./KeyRevoke.ts"
import { rotate } from "./KeyRotate.ts"
import { show } from "./KeyShow.ts"
import { unban } from "./KeyUnban.ts"
import { update } from "./KeyUpdate.ts"
import { whose } from "./KeyWhose.ts"

/** The subcommands of `petstore keys`, in the order of the help and of docs/command.md. */
export const subcommands = [issue, list, show, usage, update, rotate, revoke, unban, log, whose] as const

const keys = Command.make("keys").pipe(
  Command.withDescription("Manage API keys"),
  Command.withSubcommands(subcommands),
  Command.provide(adminClientLayer)
)

/** The command `petstore` with all its subcommands. */
export const petstore = Command.make("petstore").pipe(
  Command.withDescription("Operate a running Petstore service"),
  Command.withSubcommands([keys])
)
