/** The secrets engines that the token can use and that have a view. */
import { secrets } from '../../api/client.ts'
import { trimSlashes } from '../../app/path-segments.ts'

interface Mounts {
  readonly secret: Readonly<Record<string, { readonly type: string }>>
}

/** A type of engine with a view. Stock clients enable the cloud engine as `aws`. */
export function viewOfType(type: string): 'totp' | 'cloud' | undefined {
  return type === 'totp' ? 'totp' : type === 'cloud' || type === 'aws' ? 'cloud' : undefined
}

/** Paths without a slash at their ends. */
export async function readMountsOfView(view: 'totp' | 'cloud', signal: AbortSignal): Promise<readonly string[]> {
  const { data } = await secrets<Mounts>('sys/internal/ui/mounts', { signal })
  return Object.entries(data.secret)
    .filter(([, mount]) => viewOfType(mount.type) === view)
    .map(([path]) => trimSlashes(path))
    .toSorted()
}
