/** The secrets engines of one type that the token can use. */
import { secrets } from '../../api/client.ts'
import { trimSlashes } from './segments.ts'

interface Mounts {
  readonly secret: Readonly<Record<string, { readonly type: string }>>
}

/** Paths without a slash at their ends. */
export async function readMountsOfType(type: string, signal: AbortSignal): Promise<readonly string[]> {
  const { data } = await secrets<Mounts>('sys/internal/ui/mounts', { signal })
  return Object.entries(data.secret)
    .filter(([, mount]) => mount.type === type)
    .map(([path]) => trimSlashes(path))
    .toSorted()
}
