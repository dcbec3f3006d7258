/** The processor architectures of packages, and the packages of npm that exist for one of them only. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'

export interface Architecture {
  /** Name in Node and in the names of tarballs. */
  readonly name: string
  readonly debian: string
}

export const ARCHITECTURES: readonly Architecture[] = [
  { name: 'x64', debian: 'amd64' },
  { name: 'arm64', debian: 'arm64' },
]

/** npm installs the packages of the building machine only; `fetch.ts` puts those of another architecture here. */
export function fetchedModules(root: string, architecture: string): string {
  return join(root, 'node_modules/.cache/dist', architecture, 'node_modules')
}

/** The `node_modules` that contains Node for the architecture; undefined if neither does. */
export function platformModules(root: string, architecture: string): string | undefined {
  return [join(root, 'node_modules'), fetchedModules(root, architecture)].find((modules) =>
    existsSync(join(modules, `node-linux-${architecture}/bin/node`)),
  )
}
