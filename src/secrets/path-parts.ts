/**
 * What of a path the core or an engine declares, and what of it a caller has put in: for the access log, which shows the
 * one and hides the other.
 */
import type { PathPart } from '../kit/operation.ts'
import type { Core } from './handle.ts'

/** The parts of a canonical path; undefined for one that no endpoint declares. */
export function pathParts(core: Pick<Core, 'find'>, path: string): readonly PathPart[] | undefined {
  const place = core.find(path)
  if (!place) return undefined
  const { mount, rest } = place
  const own: PathPart = { text: mount.record.path.replace(/\/$/, ''), isName: false }
  const match = mount.paths.find(rest)
  if (!match) return rest === '' ? [own] : undefined
  const parts = match.path.pattern.split('/').map((segment): PathPart => {
    if (!segment.startsWith(':')) return { text: segment, isName: false }
    const name = segment.replace(/^:|[*+]$/g, '')
    return { text: match.params[name] ?? '', isName: true, isSecret: match.path.fields[name]?.isSecret === true }
  })
  return [own, ...parts].filter(({ text }) => text !== '')
}

/** The same on a server that asks another one, which knows no mounts: a name as a whole, or none where a token may be in it. */
export function relayedParts(path: string): readonly PathPart[] | undefined {
  let text = path
  for (let left = 8; left > 0 && /%[\da-f]{2}/i.test(text); left--) {
    try {
      text = decodeURIComponent(text)
    } catch {
      return undefined
    }
  }
  return /(?:^|\/)(?:auth\/token|wrapping)\//i.test(text) || /%[\da-f]{2}/i.test(text)
    ? undefined
    : [{ text: path, isName: true }]
}
