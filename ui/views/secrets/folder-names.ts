/** The names that a folder shows. */
import { ApiError, secrets } from '../../api/client.ts'
import type { ShowPart } from '../../app/resource.ts'
import { listFolder } from './kv.ts'
import { reachableIn, type ResultantAcl } from './reachable.ts'
import type { KvMount } from './secret-path.ts'

export interface FolderNames {
  readonly names: readonly string[]
  /** If the token may not list the folder. */
  readonly patterns?: readonly string[]
}

/** The names in a folder. Of a folder that the token may not list, those that its policies contain. */
export async function readFolder(
  mount: KvMount,
  folder: string,
  signal: AbortSignal,
  showPart: ShowPart<FolderNames>,
): Promise<FolderNames> {
  try {
    return { names: await listFolder(mount, folder, signal, (names) => showPart({ names })) }
  } catch (error) {
    if (!(error instanceof ApiError) || !error.isForbidden) throw error
    const acl = await secrets<ResultantAcl>('sys/internal/ui/resultant-acl', { signal }).catch(() => undefined)
    const found = acl && reachableIn(acl.data, mount, folder)
    // The refusal says more than an empty list.
    if (!found || (found.names.length === 0 && found.patterns.length === 0)) throw error
    return found
  }
}
