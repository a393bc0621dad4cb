/** The error of a command that cannot do its work, although its command line is valid. */
import { Data } from "effect"

export class CommandError extends Data.TaggedError("CommandError")<{ readonly message: string }> {}
