import { defineConfig } from "vitest/config"
import { BaseSequencer, type TestSpecification } from "vitest/node"

const long = ["test/processes/*.test.ts", "test/**/*.long.test.ts"]
/** Long suites of what a release has beside the service: the package, pages, examples, deployments, benchmark. */
const release = ["test/{docs,http,package}/*.long.test.ts", "test/processes/{bench,console,deployment}.test.ts"]
/** Long suites that measure no time, or with seconds of tolerance, so that other suites may take their CPU. */
const untimed = [
  "test/{conformance,node-server,rate-limit}/*.long.test.ts",
  "test/database/{PowerLossEmbedded,Tls}.long.test.ts",
  "test/processes/{categories,cli,disk,import,limits,main,metrics}.test.ts"
]
/** The slowest files, of which none should begin last. The first one needs no database, so only one worker makes one. */
const slowest = [
  "simulation/Simulation",
  "pets/PetRepository",
  "database/PoolClient",
  "database/PowerLossEmbedded",
  "database/DirectoryLock",
  "node-server/EdgeServer",
  "database/EmbeddedImport",
  "management/AdminHandlers",
  "observability/Telemetry",
  "api-keys/KeyUsage",
  "database/PowerLossEmbedded.long"
]
const rankOf = ({ moduleId }: TestSpecification): number => {
  const index = slowest.findIndex((name) => moduleId.endsWith(`/test/${name}.test.ts`))
  return index === -1 ? slowest.length : index
}

class SlowestFirst extends BaseSequencer {
  override async sort(files: Array<TestSpecification>): Promise<Array<TestSpecification>> {
    // oxlint-disable-next-line no-array-sort -- this is no array
    const sorted = await super.sort(files)
    return sorted.toSorted((a, b) => rankOf(a) - rankOf(b))
  }
}

// Above what any test needs on a busy machine. No test measures time by it.
const timeouts = { testTimeout: 360_000, hookTimeout: 360_000 }

export default defineConfig({
  test: {
    globalSetup: "test/support/setup.ts",
    setupFiles: "test/support/eachFile.ts",
    coverage: { include: ["src/**"], reporter: ["text-summary"] },
    // Files share the imported modules of their worker, because imports take 40 % of the quick suites' CPU.
    isolate: false,
    sequence: { sequencer: SlowestFirst },
    // As Node imports CommonJS.
    deps: { interopDefault: false },
    projects: [
      // `until` fails before the timeout of a test, with the condition that it waits for.
      {
        extends: true,
        test: {
          name: "quick",
          include: ["test/**/*.test.ts"],
          exclude: long,
          testTimeout: 120_000,
          hookTimeout: 120_000,
          maxConcurrency: 8
        }
      },
      {
        extends: true,
        test: { name: "long", include: untimed, maxWorkers: 2, sequence: { groupOrder: 1 }, ...timeouts }
      },
      {
        extends: true,
        test: {
          name: "timed",
          include: long,
          exclude: [...untimed, ...release],
          maxWorkers: 1,
          sequence: { groupOrder: 2 },
          ...timeouts
        }
      },
      {
        extends: true,
        test: { name: "release", include: release, maxWorkers: 2, sequence: { groupOrder: 3 }, ...timeouts }
      }
    ]
  }
})
