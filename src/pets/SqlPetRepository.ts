import { Duration, Effect } from "effect"
import * as SqlCollection from "../collection/SqlCollection.ts"
import { Settings } from "../config/Settings.ts"
import { PetRepository, pets } from "./PetRepository.ts"

export const layer = SqlCollection.layer(
  PetRepository,
  pets,
  Effect.map(Settings.petCacheSeconds.config, Duration.seconds)
)
