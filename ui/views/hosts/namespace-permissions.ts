/** What the token may do in the namespaces of allocations. The session has the permissions of `default` only. */
import { read } from '../../api/client.ts'
import type { AgentPermissions } from '../../api/types.ts'
import { useResource } from '../../app/resource.ts'
import { token } from '../../app/session.ts'

type Capability = AgentPermissions['Capabilities'][number]

export interface MayInNamespace {
  /** False until the permissions are known. */
  (namespace: string, ...anyOf: readonly Capability[]): boolean
  readonly isKnown: boolean
}

export function useNamespacePermissions(namespaces: readonly string[]): MayInNamespace {
  const names = JSON.stringify([...new Set(namespaces)].toSorted())
  const { data } = useResource(
    async (signal) => {
      const wanted: readonly string[] = JSON.parse(names)
      const found = await Promise.all(
        wanted.map(async (namespace) => {
          const { Capabilities } = await read('/v1/agent/permissions', { query: { namespace }, signal })
          return [namespace, new Set<string>(Capabilities)] as const
        }),
      )
      return new Map(found)
    },
    [names, token.value],
  )
  const may = (namespace: string, ...anyOf: readonly Capability[]) =>
    anyOf.some((capability) => data?.get(namespace)?.has(capability) === true)
  return Object.assign(may, { isKnown: data !== undefined })
}
