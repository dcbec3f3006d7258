/** Giving a token more time. */
import type { Reply } from '../../engines/engine.ts'
import { Rejection } from '../../engines/engine.ts'
import type { TokenParts } from './token-parts.ts'
import { authBlock } from './token-create.ts'
import type { TokenEntry } from './token-entry.ts'
import { tokenMountRules } from './token-mount.ts'
import { findRole } from './token-role.ts'
import { lifeOf } from './token-ttl.ts'

/** `token` is shown to the caller again; empty where it must not be. Rejects with what the caller got wrong. */
export async function renewToken(
  core: TokenParts,
  { hash, type }: TokenEntry,
  { token, wishSeconds }: { readonly token: string; readonly wishSeconds: number },
): Promise<Reply> {
  if (type === 'batch') throw new Rejection(400, 'batch tokens cannot be renewed')
  const { tokens } = core.open
  const before = tokens.isThere(hash) ? tokens.pending(hash) : undefined
  if (!before) throw new Rejection(400, 'token not found')
  if (!before.renewable || before.expiresAtMs === undefined) throw new Rejection(400, 'lease is not renewable')
  const nowMs = core.now()
  const { seconds, warnings } = lifeOf(
    {
      ...tokenMountRules(core),
      ...rulesOf(core, before),
      wishSeconds: wishSeconds > 0 ? wishSeconds : before.leaseSeconds,
      createdAtMs: before.createdAtMs,
    },
    nowMs,
  )
  const entry = { ...before, leaseSeconds: seconds, renewedAtMs: nowMs, expiresAtMs: nowMs + seconds * 1000 }
  await tokens.change(before, entry)
  return { auth: authBlock(entry, token), warnings }
}

/** Of a token with a role, what the role says today, within what the token was made with. */
function rulesOf(core: TokenParts, entry: TokenEntry): { periodSeconds: number; explicitMaxSeconds: number } {
  const { explicitMaxTtlSeconds: explicit, periodSeconds: period, role: name } = entry
  if (name === '') return { periodSeconds: period, explicitMaxSeconds: explicit }
  const role = findRole(core, name)
  if (!role) {
    throw new Rejection(400, `original token role ${JSON.stringify(name)} could not be found, not renewing`)
  }
  return {
    periodSeconds: role.periodSeconds === 0 ? 0 : least(period, role.periodSeconds),
    explicitMaxSeconds: least(explicit, role.explicitMaxTtlSeconds),
  }
}

/** Of two bounds, of which 0 is none. */
function least(a: number, b: number): number {
  return a === 0 || b === 0 ? a + b : Math.min(a, b)
}
