/** What `?help=1` answers: the declarations of a mount's paths, in words. */
import type { Path, Reply } from '../../engines/framework/engine.ts'
import type { ResolvedPath } from '../mounts/mounts.ts'

export function helpOf({ mount }: ResolvedPath, path: Path | undefined): Reply {
  return {
    bare: { help: path ? pathHelp(path) : mountHelp(mount.engine.description, mount.paths.paths), see_also: null },
  }
}

function pathHelp(path: Path): string {
  const fields = Object.entries(path.fields).map(
    ([name, { description, kind }]) => `    ${name} (${kind})\n        ${description}`,
  )
  const parts = [`${path.pattern}\n    ${path.summary}`, `Operations: ${Object.keys(path.handlers).join(', ')}`]
  return `${[...parts, ...(fields.length > 0 ? ['Parameters:', ...fields] : [])].join('\n\n')}\n`
}

function mountHelp(description: string, paths: readonly Path[]): string {
  const lines = paths.map(({ pattern, summary }) => `    ${pattern}\n        ${summary}`)
  return `${[description, 'Paths:', ...lines].join('\n\n')}\n`
}
