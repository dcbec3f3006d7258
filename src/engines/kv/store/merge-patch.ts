/** JSON merge patch (RFC 7396): null removes, objects merge, everything else replaces. Neither argument is changed. */
import { isObject } from '../../framework/fields.ts'

export function mergePatch(target: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch
  // A map, because a member may be called `__proto__`.
  const merged = new Map(isObject(target) ? Object.entries(target) : [])
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) merged.delete(name)
    else merged.set(name, mergePatch(merged.get(name), value))
  }
  return Object.fromEntries(merged)
}
