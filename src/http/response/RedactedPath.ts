/** The paths of requests in logs and traces, without secrets. */

/** The maximum length of a path in the log. */
const maxPathLength = 200

/**
 * Returns the path of a URL for logs and traces, without the query, which can hold secrets. It hides the secrets of
 * keys and generated tokens, and has only visible ASCII characters, so that no client writes control characters to a
 * terminal. Returns `undefined` for a target without a path, such as the authority of CONNECT.
 */
export const redactPath = (url: string): string | undefined => {
  // The absolute form of a target has an authority, which can contain a password.
  const target = url.replace(/^[a-z][a-z\d+.-]*:\/\/[^/?#]*/i, "")
  if (!target.startsWith("/")) return undefined
  const path = (target.split(/[?;#]/, 1)[0] ?? "")
    .replaceAll(/(psk|adm)(_|%5f)[\w%]+/gi, "$1_…")
    .replaceAll(/[^!-~…]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`)
  return path.length > maxPathLength ? `${path.slice(0, maxPathLength)}…` : path
}
