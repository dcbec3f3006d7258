/** The settings of `server { seal "…" { } }`: which there are, and which belong together. */
import type { FaultList, LabelledBlock, Setting } from './fields.ts'
import { nearestName } from './nearest-name.ts'

export type RawSeal = LabelledBlock<ReadonlyMap<string, Setting<string>>>

const OF_STATIC = ['current_key_id', 'current_key', 'previous_key_id', 'previous_key', 'disabled']
/** Where a key may come from; texts without a scheme are the key itself. */
const SCHEME = /^([a-z]+):\/\//
const SCHEMES = ['file', 'env', 'credential']

export function checkSeal(type: 'shamir' | 'static', { body, where }: RawSeal, faults: FaultList): void {
  const known = type === 'static' ? OF_STATIC : []
  for (const [name, setting] of body) {
    if (known.includes(name)) continue
    const near = nearestName(name, known)
    const hint = near ? `, did you mean "${near}"?` : ''
    faults.add(setting.where, `unknown key "${name}" in server.seal "${type}"${hint}`)
  }
  if (type !== 'static') return
  for (const name of ['current_key_id', 'current_key']) {
    if (!body.get(name)?.value) faults.add(body.get(name)?.where ?? where, `server.seal "static" needs ${name}`)
  }
  const [previousId, previous] = [body.get('previous_key_id'), body.get('previous_key')]
  const half = previousId ?? previous
  if (half && !(previousId && previous)) {
    faults.add(half.where, 'server.seal: previous_key_id and previous_key go together')
  } else if (previousId && previousId.value === body.get('current_key_id')?.value) {
    faults.add(previousId.where, 'server.seal: previous_key_id and current_key_id must differ')
  }
  const disabled = body.get('disabled')
  if (disabled && !['true', 'false'].includes(disabled.value)) {
    faults.add(disabled.where, 'server.seal.disabled: expected true or false')
  }
  for (const name of ['current_key', 'previous_key']) checkSource(name, body.get(name), faults)
}

/** A key in the configuration itself is not looked at here: a fault would show it. */
function checkSource(name: string, setting: Setting<string> | undefined, faults: FaultList): void {
  const scheme = SCHEME.exec(setting?.value ?? '')?.[1]
  if (scheme === undefined || SCHEMES.includes(scheme)) return
  const schemes = 'file:///path, env://NAME, credential://NAME or the key in hex or base64'
  faults.add(setting?.where, `server.seal.${name}: expected ${schemes}`)
}
