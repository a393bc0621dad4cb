/** The package has no types of its own. */
declare module "write-good" {
  export interface Suggestion {
    readonly index: number
    readonly offset: number
    readonly reason: string
  }
  export interface Check {
    readonly fn: (text: string) => Array<{ readonly index: number; readonly offset: number }>
    readonly explanation: string
  }
  interface Options {
    readonly checks?: Readonly<Record<string, Check>>
    readonly [builtIn: string]: boolean | Readonly<Record<string, Check>> | undefined
  }
  export default function writeGood(text: string, options?: Options): Array<Suggestion>
}
