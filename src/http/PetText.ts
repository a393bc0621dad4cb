/** Animals as JSON text, as the contract's schemas write them (a test holds the two together) at a tenth of the cost. */
import type { Pet } from "../api/Pets.ts"

export const petText = ({ categoryId, id, name, status }: Pet): string =>
  `{"id":${id},"name":${JSON.stringify(name)},"categoryId":${categoryId}${
    status === undefined ? "" : `,"status":"${status}"`
  }}`

export const petsText = (pets: ReadonlyArray<Pet>): string => `[${pets.map(petText).join()}]`
