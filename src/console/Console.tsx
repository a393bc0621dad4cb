/** The console: the sign-in page, or the views of a signed-in operator. */
import { useCallback, useState } from "preact/hooks"
import type { AdminClient } from "../client/PetstoreClient.ts"
import { AuditView } from "./AuditView.tsx"
import { KeysView } from "./KeysView.tsx"
import { KeyView } from "./KeyView.tsx"
import { Overview } from "./Overview.tsx"
import { type Route, useRoute } from "./Route.ts"
import { SessionContext } from "./Session.ts"
import { Shell } from "./Shell.tsx"
import { SignIn } from "./SignIn.tsx"

/** The sign-in page before the first session, or the end of a session with its reason. */
type State = { readonly client: AdminClient["Service"] } | { readonly reason: string | undefined }

const View = ({ route }: { readonly route: Route }) => {
  if (route.view === "key") return <KeyView key={route.id} id={route.id} />
  if (route.view === "overview") return <Overview />
  if (route.view === "audit") return <AuditView />
  return <KeysView filter={route.filter} />
}

export const Console = () => {
  const [state, setState] = useState<State>({ reason: undefined })
  const [message, announce] = useState("")
  const route = useRoute()
  const signOut = useCallback((reason?: string) => {
    setState({ reason })
    announce("")
  }, [])
  if (!("client" in state)) return <SignIn reason={state.reason} onSignIn={(client) => setState({ client })} />
  return (
    <SessionContext.Provider value={{ client: state.client, signOut, announce }}>
      <Shell route={route} message={message}>
        <View route={route} />
      </Shell>
    </SessionContext.Provider>
  )
}
