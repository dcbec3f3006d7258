/** Version and time of a release, from package.json and the commit: the same commit gives the same packages. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

export interface ReleaseFacts {
  readonly version: string
  readonly releaseSeconds: number
}

export function releaseFacts(root: string): ReleaseFacts {
  return { version: versionOf(root), releaseSeconds: releaseSeconds(root) }
}

function versionOf(root: string): string {
  const content: unknown = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  if (typeof content === 'object' && content !== null && 'version' in content && typeof content.version === 'string') {
    return content.version
  }
  throw new Error('package.json has no version')
}

/** SOURCE_DATE_EPOCH, else the time of the commit. */
function releaseSeconds(root: string): number {
  const given = process.env['SOURCE_DATE_EPOCH'] ?? commitSeconds(root)
  if (given === undefined)
    throw new Error('this is not a git checkout: set SOURCE_DATE_EPOCH to the time of the release')
  if (!/^\d{1,11}$/.test(given))
    throw new Error(`SOURCE_DATE_EPOCH must be seconds since 1970, got ${JSON.stringify(given)}`)
  return Number(given)
}

function commitSeconds(root: string): string | undefined {
  try {
    const command = ['-C', root, 'log', '-1', '--format=%ct']
    return execFileSync('git', command, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()
  } catch {
    return undefined
  }
}
