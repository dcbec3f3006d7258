/** What the token may do with paths of the secrets core. Actions that it may not perform are not offered. */
import { useEffect, useState } from 'preact/hooks'
import { isSealed, token } from '../app/session.ts'
import { secrets } from './client.ts'

export type Capability = 'create' | 'read' | 'update' | 'patch' | 'delete' | 'list' | 'scan' | 'sudo'

type CapabilityMap = ReadonlyMap<string, readonly string[]>

export interface CapabilityCheck {
  /** False while the capabilities of the path are not known. */
  (path: string, capability: Capability): boolean
  /** True when the server has answered for all paths. */
  readonly isKnown: boolean
}

const NONE: CapabilityMap = new Map()

/** Asks the server what the token of the session may do. */
export async function readCapabilities(paths: readonly string[], signal?: AbortSignal): Promise<CapabilityMap> {
  const { data } = await secrets<Readonly<Record<string, readonly string[]>>>('sys/capabilities-self', {
    method: 'POST',
    body: { paths },
    signal,
  })
  return new Map(paths.map((path) => [path, answerOf(data, path)]))
}

/** The server removes white space around a path. */
function answerOf(data: Readonly<Record<string, readonly string[]>>, path: string): readonly string[] {
  for (const name of [path, path.trim()]) if (Object.hasOwn(data, name)) return data[name] ?? []
  return []
}

/** Whether a list of capabilities of the server contains one. */
export function includesCapability(capabilities: readonly string[], capability: Capability): boolean {
  if (capabilities.includes('deny')) return false
  return capabilities.includes('root') || capabilities.includes(capability)
}

/**
 * Returns a function that tells whether the token may use a capability on one of `paths` (without `/v1/`, not encoded):
 *
 *     const may = useCapabilities([`sys/policies/acl/${name}`])
 *     {may(`sys/policies/acl/${name}`, 'update') && <Button …>}
 *
 * Answers are kept while the component is mounted, until the token changes. `paths` may change with each rendering.
 */
export function useCapabilities(paths: readonly string[]): CapabilityCheck {
  const [state, setState] = useState<{ readonly token: string | undefined; readonly known: CapabilityMap }>({
    token: token.value,
    known: NONE,
  })
  const known = state.token === token.value ? state.known : NONE
  const missing = paths.filter((path) => path !== '' && !known.has(path))
  const key = missing.join('\0')
  useEffect(() => {
    if (key === '' || token.value === undefined || isSealed.value) return undefined
    const abort = new AbortController()
    const askedBy = token.value
    readCapabilities(key.split('\0'), abort.signal).then(
      (answers) =>
        setState((before) => ({
          token: askedBy,
          known: new Map([...(before.token === askedBy ? before.known : NONE), ...answers]),
        })),
      // The actions are not offered; the view shows why its own requests fail.
      () => undefined,
    )
    return () => abort.abort()
  }, [key, token.value, isSealed.value])
  const may = (path: string, capability: Capability) => includesCapability(known.get(path) ?? [], capability)
  return Object.assign(may, { isKnown: missing.length === 0 })
}
