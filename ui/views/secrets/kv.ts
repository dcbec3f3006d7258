/** Requests to KV mounts, of version 1 and 2. */
import { ApiError, listSecrets, type Query, secrets, secretsPath, send } from '../../api/client.ts'
import type { ShowPart } from '../../app/resource.ts'
import { isObject, parseJsonText, type SecretData } from './secret-data.ts'
import { type KvMount, kvPath, nameMatcher } from './secret-path.ts'
import type { SecretMetadata, SecretSettings, VersionInfo } from './secret/versions.ts'

export interface MountInfo {
  readonly path: string
  readonly type: string
  readonly description: string
  readonly options: Readonly<Record<string, string>> | null
  readonly local: boolean
}

/** The mounts of secrets engines that the token can use. */
export async function listMounts(signal?: AbortSignal): Promise<readonly MountInfo[]> {
  interface Answer {
    readonly secret: Readonly<Record<string, Omit<MountInfo, 'path'>>>
  }
  const { data } = await secrets<Answer>('sys/internal/ui/mounts', { signal })
  return Object.entries(data.secret).map(([path, info]) => ({ ...info, path }))
}

export async function readMount(path: string, signal?: AbortSignal): Promise<MountInfo> {
  const { data } = await secrets<MountInfo>(`sys/internal/ui/mounts/${path}`, { signal })
  return data
}

export function kvMountOf({ options, path }: Pick<MountInfo, 'path' | 'options'>): KvMount {
  return { path, version: options?.['version'] === '2' ? 2 : 1 }
}

/** More than a screen shows. */
const FIRST_NAMES = 100

/** The names in a folder. Shows the first ones of a large folder while all are loaded. */
export async function listFolder(
  mount: KvMount,
  folder: string,
  signal: AbortSignal,
  showPart: ShowPart<readonly string[]>,
): Promise<readonly string[]> {
  const path = kvPath(mount, 'metadata', folder)
  const first = await listSecrets(path, { query: { limit: FIRST_NAMES }, signal })
  // A server without pages answers with all.
  if (first.length !== FIRST_NAMES) return first
  showPart(first)
  return listSecrets(path, { signal })
}

/** A version of a secret. */
export interface SecretVersion {
  /** 0 in a mount without versions. */
  readonly version: number
  /** Undefined if it is deleted or destroyed. */
  readonly data: SecretData | undefined
  readonly info: VersionInfo | undefined
}

/** Parses a response with the numbers of the secret as they are written. */
async function sendExact(path: string, query: Query, signal?: AbortSignal): Promise<unknown> {
  const response = await send(secretsPath(path), { query, signal })
  const parsed = parseJsonText(await response.text())
  return isObject(parsed) ? parsed['data'] : undefined
}

/** Reads the current version, or another one. Undefined if there is none. */
export async function readVersion(
  mount: KvMount,
  name: string,
  { signal, version }: { readonly version?: number; readonly signal?: AbortSignal } = {},
): Promise<SecretVersion | undefined> {
  try {
    const data = await sendExact(kvPath(mount, 'data', name), { version }, signal)
    if (!isObject(data)) return undefined
    if (mount.version === 1) return { version: 0, data, info: undefined }
    return versionOf(data)
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 404) throw error
    const data = isObject(error.data) ? error.data['data'] : undefined
    return isObject(data) ? versionOf(data) : undefined
  }
}

function versionOf({ data, metadata }: SecretData): SecretVersion {
  const info = metadata as VersionInfo
  return { version: info.version, data: isObject(data) ? data : undefined, info }
}

/** Undefined if there is no such secret. */
export async function readMetadata(
  mount: KvMount,
  name: string,
  signal?: AbortSignal,
): Promise<SecretMetadata | undefined> {
  type Answer = Omit<SecretMetadata, 'versions'> & {
    readonly versions: Readonly<Record<string, Omit<VersionInfo, 'version'>>>
  }
  try {
    const { data } = await secrets<Answer>(kvPath(mount, 'metadata', name), { signal })
    const versions = Object.entries(data.versions).map(([number, info]) => ({ ...info, version: Number(number) }))
    return { ...data, versions: versions.toSorted((one, other) => other.version - one.version) }
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return undefined
    throw error
  }
}

/** Writes a version. With `cas`, only if the current version has this number; 0 if there is none. Returns the number of the new version. */
export async function writeSecret(mount: KvMount, name: string, data: SecretData, cas?: number): Promise<number> {
  const body = mount.version === 1 ? data : { data, ...(cas !== undefined && { options: { cas } }) }
  const answer = await secrets<{ readonly version: number }>(kvPath(mount, 'data', name), {
    method: 'POST',
    body,
    ...(cas === 0 && { capability: 'create' }),
  })
  return mount.version === 1 ? 0 : answer.data.version
}

/** Whether a write failed because another version was written. */
export function isCasConflict(error: unknown): boolean {
  return (
    error instanceof ApiError && error.status === 400 && error.message.includes('did not match the current version')
  )
}

export async function deleteCurrent(mount: KvMount, name: string): Promise<void> {
  await secrets(kvPath(mount, 'data', name), { method: 'DELETE' })
}

export type VersionAction = 'delete' | 'undelete' | 'destroy'

export async function changeVersions(
  mount: KvMount,
  name: string,
  action: VersionAction,
  versions: readonly number[],
): Promise<void> {
  await secrets(kvPath(mount, action, name), { method: 'POST', body: { versions } })
}

/** Removes all versions and the metadata. */
export async function removeSecret(mount: KvMount, name: string): Promise<void> {
  await secrets(kvPath(mount, 'metadata', name), { method: 'DELETE' })
}

/** Writes settings, if the metadata still has the version that was read. */
export async function writeSettings(
  mount: KvMount,
  name: string,
  settings: SecretSettings,
  metadataVersion: number,
): Promise<void> {
  const body = { ...settings, metadata_cas: metadataVersion }
  await secrets(kvPath(mount, 'metadata', name), { method: 'POST', body })
}

/** Results that a search reads at most. */
export const FOUND_MAX = 2000

export interface Found {
  readonly names: readonly string[]
  readonly isMore: boolean
}

/** Finds secrets below a folder by a part of their name, with `*` by a pattern. */
export async function searchNames(
  mount: KvMount,
  folder: string,
  wanted: string,
  signal?: AbortSignal,
): Promise<Found> {
  return mount.version === 1
    ? await scanNames(mount, folder, wanted, signal)
    : await searchVersioned(mount, folder, wanted, signal)
}

async function searchVersioned(mount: KvMount, folder: string, wanted: string, signal?: AbortSignal): Promise<Found> {
  interface Answer {
    readonly found: readonly { readonly path: string }[]
    readonly next: string | null
  }
  const names: string[] = []
  let after = ''
  for (;;) {
    const query = { name: wanted, after }
    const { data } = await secrets<Answer>(kvPath(mount, 'search', folder), { query, signal })
    names.push(...data.found.map(({ path }) => path))
    if (data.next === null || names.length >= FOUND_MAX) return { names, isMore: data.next !== null }
    after = data.next
  }
}

/** A mount of version 1 has no search: all names below the folder are read. */
async function scanNames(mount: KvMount, folder: string, wanted: string, signal?: AbortSignal): Promise<Found> {
  const { data } = await secrets<{ readonly keys?: readonly string[] }>(mount.path + folder, {
    query: { scan: true },
    signal,
  })
  const matches = nameMatcher(wanted)
  const names = (data.keys ?? []).map((name) => folder + name).filter(matches)
  return { names: names.slice(0, FOUND_MAX), isMore: names.length > FOUND_MAX }
}
