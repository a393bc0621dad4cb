/**
 * Fails if an export of the client package, or a field, method or static member of one, has no docstring.
 *
 * Run it with `npm run check`.
 */
import { join, relative } from "node:path"
import ts from "typescript-5.9"

const root = join(import.meta.dirname, "..")
const source = join(root, "src/")
const entries = ["api/ApiExports.ts", "client/ClientExports.ts", "testing.ts"].map((entry) => join(source, entry))

const { config } = ts.readConfigFile(join(import.meta.dirname, "tsconfig.json"), ts.sys.readFile)
const { fileNames, options } = ts.parseJsonConfigFileContent(config, ts.sys, import.meta.dirname)
const program = ts.createProgram(fileNames, { ...options, noEmit: true })
const checker = program.getTypeChecker()

const isOwn = ({ declarations = [] }: ts.Symbol): boolean =>
  declarations.some((declaration) => declaration.getSourceFile().fileName.startsWith(source))

const hasDocstring = (symbol: ts.Symbol): boolean => symbol.getDocumentationComment(checker).length > 0

const membersOf = (symbol: ts.Symbol): ReadonlyArray<ts.Symbol> => {
  const isValue = (symbol.flags & ts.SymbolFlags.Value) !== 0
  const isType = (symbol.flags & ts.SymbolFlags.Type) !== 0
  const statics = isValue ? checker.getPropertiesOfType(checker.getTypeOfSymbol(symbol)) : []
  const fields = isType ? checker.getPropertiesOfType(checker.getDeclaredTypeOfSymbol(symbol)) : []
  // The functions of a service are those of its shape.
  const shape = statics.find(({ name }) => name === "Service")
  const functions = shape === undefined ? [] : checker.getPropertiesOfType(checker.getTypeOfSymbol(shape))
  return [...statics, ...fields, ...functions]
}

const missing = new Set<string>()
for (const entry of entries) {
  const file = program.getSourceFile(entry)
  const module = file && checker.getSymbolAtLocation(file)
  if (module === undefined) throw new Error(`${entry} exports nothing.`)
  for (const exported of checker.getExportsOfModule(module)) {
    const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported
    if (!hasDocstring(symbol)) missing.add(exported.name)
    for (const member of membersOf(symbol)) {
      if (isOwn(member) && !hasDocstring(member)) missing.add(`${exported.name}.${member.name}`)
    }
  }
}

if (missing.size > 0) {
  console.error(`Exports of ${relative(root, import.meta.dirname)} without a docstring:\n${[...missing].join("\n")}`)
  process.exitCode = 1
}
