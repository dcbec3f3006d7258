/**
 * The end of an alias with its user or role. An entity is found by the name that an auth method calls it; a name that is used again,
 * for another person or program, must not give that one the entity's policies, groups and MFA secrets
 * (docs/decisions/085-lockout-of-roles-and-reused-names.md). The entity itself stays: tokens refer to it, and it may have other aliases.
 */
import type { IdentityStore } from '../identity/identity.ts'
import type { Mount } from '../mounts/mounts.ts'
import type { Login } from './login.ts'

interface ReleasedNames {
  readonly mount: Mount
  readonly names: readonly string[]
  readonly nowMs: number
}

/** Removes the aliases that have these names at a mount. Nothing may be awaited before the parts are committed. */
export function releasedAliases(
  identity: IdentityStore,
  { mount, names, nowMs }: ReleasedNames,
): Pick<Login, 'landed' | 'parts'> {
  const { accessor } = mount.record
  const draft = identity.draft(nowMs)
  for (const name of names) {
    const entity = draft.entityOfAlias(accessor, name)
    if (!entity) continue
    const others = entity.aliases.filter((each) => each.mountAccessor !== accessor || each.name !== name)
    draft.putEntity({ ...entity, aliases: others })
  }
  if (draft.touched.size === 0) return { parts: [], landed: () => undefined }
  const { landed, part } = identity.part(draft)
  return { parts: [part], landed }
}
