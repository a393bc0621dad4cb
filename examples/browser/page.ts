/**
 * Shows the pets for sale in a page of another origin than the service.
 *
 * Start the service with the origin of the page in `CORS_ORIGINS`. Bundle this module with
 * `npx rolldown page.ts --file page.js`, and serve it beside `index.html`. The user types the API key, because every
 * visitor could read a key in the page.
 */
import { Effect, Redacted, Stream } from "effect"
import { PetstoreClient } from "petstore-client/client"

const [form] = document.forms
const list = document.querySelector("ul")
const status = document.querySelector("[role=status]")
if (form === undefined || list === null || status === null) throw new Error("The page lacks an element.")

const showPets = Effect.gen(function*() {
  const petstore = yield* PetstoreClient
  yield* Stream.runForEach(petstore.all({ status: "available" }), ({ id, name }) =>
    Effect.sync(() => {
      const item = document.createElement("li")
      item.textContent = `${name} (${id})`
      list.append(item)
    }))
})

form.addEventListener("submit", (event) => {
  event.preventDefault()
  list.replaceChildren()
  status.textContent = "Loading"
  const data = new FormData(form)
  const textOf = (name: string): string => {
    const value = data.get(name)
    return typeof value === "string" ? value : ""
  }
  const client = PetstoreClient.layer({ baseUrl: textOf("url"), apiKey: Redacted.make(textOf("key")) })
  const shown = showPets.pipe(
    Effect.match({ onSuccess: () => "Complete", onFailure: ({ message }) => message }),
    Effect.map((text) => {
      status.textContent = text
    }),
    Effect.provide(client)
  )
  void Effect.runPromise(shown)
})
