/** The URL by which this machine reaches a server of this process. */
import { HttpServer } from "effect/http"

/** Returns the URL of a server. A server that listens on all addresses, 0.0.0.0 or [::], is reachable as localhost. */
export const localUrl = ({ address }: HttpServer.HttpServer["Service"]): string =>
  HttpServer.formatAddress(address).replace(/\/\/(0\.0\.0\.0|\[::\]):/, "//localhost:")
