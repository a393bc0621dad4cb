/** Mounts the console in its page. */
import { render } from "preact"
import { Console } from "./Console.tsx"

const app = document.getElementById("app")
if (app !== null) {
  app.replaceChildren()
  render(<Console />, app)
}
