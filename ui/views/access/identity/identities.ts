/** Requests about entities and groups. */
import { ApiError, secrets } from '../../../api/client.ts'

export interface Alias {
  readonly id: string
  readonly name: string
  readonly mount_path: string
  readonly mount_type: string
  readonly mount_accessor: string
  readonly creation_time?: string
}

export interface EntityRow {
  readonly id: string
  readonly name: string
  readonly aliases: readonly Alias[]
}

export interface GroupRow {
  readonly id: string
  readonly name: string
  readonly policies: readonly string[]
  readonly members: number
}

/** The server returns null for some empty lists. */
type Names = readonly string[] | null

export interface Entity extends EntityRow {
  readonly disabled: boolean
  readonly policies: Names
  readonly direct_group_ids: Names
  readonly inherited_group_ids: Names
  readonly creation_time: string
  readonly last_update_time: string
  readonly metadata: Readonly<Record<string, string>> | null
}

export interface Group {
  readonly id: string
  readonly name: string
  readonly type: string
  readonly alias: Partial<Alias> | null
  readonly policies: Names
  readonly member_entity_ids: Names
  readonly member_group_ids: Names
  readonly parent_group_ids: Names
  readonly metadata: Readonly<Record<string, string>> | null
  readonly creation_time: string
  readonly last_update_time: string
}

interface List<Info> {
  readonly keys: readonly string[]
  readonly key_info?: Readonly<Record<string, Info>>
}

async function list<Info>(
  path: string,
  signal: AbortSignal,
): Promise<readonly (readonly [string, Info | undefined])[]> {
  try {
    const { data } = await secrets<List<Info>>(path, { query: { list: true }, signal })
    return data.keys.map((id) => [id, data.key_info?.[id]])
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return []
    throw error
  }
}

export async function listEntities(signal: AbortSignal): Promise<readonly EntityRow[]> {
  const found = await list<Omit<EntityRow, 'id'>>('identity/entity/id', signal)
  return found.map(([id, info]) => ({ id, name: info?.name ?? id, aliases: info?.aliases ?? [] }))
}

export async function listGroups(signal: AbortSignal): Promise<readonly GroupRow[]> {
  const found = await list<{ name: string; policies?: Names; num_member_entities?: number }>(
    'identity/group/id',
    signal,
  )
  return found.map(([id, info]) => ({
    id,
    name: info?.name ?? id,
    policies: info?.policies ?? [],
    members: info?.num_member_entities ?? 0,
  }))
}

export async function readEntity(id: string, signal: AbortSignal): Promise<Entity> {
  return (await secrets<Entity>(`identity/entity/id/${id}`, { signal })).data
}

export async function readGroup(id: string, signal: AbortSignal): Promise<Group> {
  return (await secrets<Group>(`identity/group/id/${id}`, { signal })).data
}

export async function setEntityDisabled(id: string, isDisabled: boolean): Promise<void> {
  await secrets(`identity/entity/id/${id}`, { method: 'POST', body: { disabled: isDisabled } })
}

export function matchesText(wanted: string, parts: readonly string[]): boolean {
  const text = wanted.trim().toLowerCase()
  return text === '' || parts.some((part) => part.toLowerCase().includes(text))
}
