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

const inputValue = (name: string): string => {
  const input = form.elements.namedItem(name)
  return input instanceof HTMLInputElement ? input.value : ""
}

const showStatus = (text: string) =>
  Effect.sync(() => {
    status.textContent = text
  })

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
  const client = PetstoreClient.layer({ baseUrl: inputValue("url"), apiKey: Redacted.make(inputValue("key")) })
  showStatus("Loading").pipe(
    Effect.andThen(showPets),
    Effect.matchEffect({
      onSuccess: () => showStatus("Complete"),
      onFailure: ({ message }) => showStatus(message)
    }),
    Effect.provide(client),
    Effect.runFork
  )
})
