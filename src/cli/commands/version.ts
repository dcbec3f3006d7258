/** `outpost version`. */
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { buildCommit } from '../../platform/build-commit.ts'
import { CommandError, defineCommand } from '../framework/define-command.ts'

export const command = defineCommand({
  name: 'version',
  summary: 'Print the version',
  options: {},
  run(_values, _operands, io) {
    const platform = `${process.platform} ${process.arch}`
    io.out(`outpost v${programVersion()} (node ${process.version}, ${platform}, commit ${buildCommit()})\n`)
    return Promise.resolve(0)
  },
})

/** The version in package.json, which is in a directory above, for sources and bundle alike. */
export function programVersion(): string {
  let directory = import.meta.dirname
  while (true) {
    const version = versionIn(join(directory, 'package.json'))
    if (version !== undefined) return version
    const above = dirname(directory)
    if (above === directory) throw new CommandError('cannot find package.json of outpost: reinstall it')
    directory = above
  }
}

function versionIn(file: string): string | undefined {
  try {
    const content: unknown = JSON.parse(readFileSync(file, 'utf8'))
    if (typeof content !== 'object' || content === null) return undefined
    if (!('name' in content) || content.name !== 'outpost' || !('version' in content)) return undefined
    return typeof content.version === 'string' ? content.version : undefined
  } catch {
    return undefined // missing, or of another package
  }
}
