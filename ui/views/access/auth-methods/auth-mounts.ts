/** Requests about auth methods, users and roles. */
import { ApiError, listSecrets, secrets } from '../../../api/client.ts'

export interface AuthMount {
  /** With a slash at its end. */
  readonly path: string
  readonly type: string
  readonly description: string
  readonly accessor: string
}

type Mounts = Readonly<Record<string, Omit<AuthMount, 'path'>>>

/** All auth methods, or those that the token can use if it may not list them. */
export async function readAuthMounts(signal: AbortSignal): Promise<readonly AuthMount[]> {
  const mounts = await secrets<Mounts>('sys/auth', { signal }).then(
    ({ data }) => data,
    async (error: unknown) => {
      if (!(error instanceof ApiError) || !error.isForbidden) throw error
      return (await secrets<{ auth: Mounts }>('sys/internal/ui/mounts', { signal })).data.auth
    },
  )
  return Object.entries(mounts)
    .map(([path, { accessor, description, type }]) => ({ path, accessor, description, type }))
    .toSorted((a, b) => (a.path < b.path ? -1 : 1))
}

/** What an auth method contains. */
export interface MemberKind {
  readonly title: string
  readonly one: string
  /** Path below the mount. */
  readonly folder: string
}

const KINDS: Readonly<Record<string, MemberKind>> = {
  userpass: { title: 'Users', one: 'user', folder: 'users' },
  approle: { title: 'Roles', one: 'role', folder: 'role' },
}

/** Undefined for a method without users or roles. */
export function memberKind(type: string): MemberKind | undefined {
  return Object.hasOwn(KINDS, type) ? KINDS[type] : undefined
}

export function listMembers(mount: string, kind: MemberKind, signal: AbortSignal): Promise<readonly string[]> {
  return listSecrets(`auth/${mount}/${kind.folder}`, { signal })
}

export type MemberData = Readonly<Record<string, unknown>>

export async function readMember(
  mount: string,
  kind: MemberKind,
  name: string,
  signal: AbortSignal,
): Promise<MemberData> {
  const { data } = await secrets<MemberData>(`auth/${mount}/${kind.folder}/${name}`, { signal })
  if (kind.folder !== 'role') return data
  const roleId = await secrets<MemberData>(`auth/${mount}/role/${name}/role-id`, { signal }).catch(() => undefined)
  return { ...roleId?.data, ...data }
}

export interface UserDraft {
  readonly name: string
  readonly password: string
  readonly policies: readonly string[]
  readonly ttl: string
}

export async function createUser(mount: string, { name, password, policies, ttl }: UserDraft): Promise<void> {
  const body = { password, token_policies: policies, ...(ttl !== '' && { token_ttl: ttl }) }
  await secrets(`auth/${mount}/users/${name}`, { method: 'POST', body })
}

export interface RoleDraft {
  readonly name: string
  readonly policies: readonly string[]
  readonly ttl: string
  readonly maxTtl: string
  readonly secretIdTtl: string
  readonly secretIdUses: string
}

export async function createRole(mount: string, draft: RoleDraft): Promise<void> {
  if (/\D/.test(draft.secretIdUses)) throw new Error('The uses of a secret ID are a number.')
  const { maxTtl, name, policies, secretIdTtl, secretIdUses, ttl } = draft
  const body = {
    token_policies: policies,
    ...(ttl !== '' && { token_ttl: ttl }),
    ...(maxTtl !== '' && { token_max_ttl: maxTtl }),
    ...(secretIdTtl !== '' && { secret_id_ttl: secretIdTtl }),
    ...(secretIdUses !== '' && { secret_id_num_uses: Number(secretIdUses) }),
  }
  await secrets(`auth/${mount}/role/${name}`, { method: 'POST', body })
}

/** Why a name cannot be used for a new user or role; undefined if it can. */
export function memberNameProblem(one: string, name: string, existing: readonly string[]): string | undefined {
  if (name === '') return 'Enter a name.'
  if (!/^[\w.@-]+$/.test(name) || /^\.+$/.test(name)) return 'A name has letters, digits and . _ @ - only.'
  if (existing.includes(name.toLowerCase())) return `The ${one} “${name}” exists.`
  return undefined
}

const LABELS: Readonly<Record<string, string>> = {
  role_id: 'Role ID',
  token_policies: 'Policies',
  token_ttl: 'Token TTL',
  token_max_ttl: 'Maximum TTL of tokens',
  token_explicit_max_ttl: 'Explicit maximum TTL',
  token_period: 'Period of tokens',
  token_num_uses: 'Uses of a token',
  token_type: 'Type of tokens',
  token_bound_cidrs: 'Tokens bound to addresses',
  token_no_default_policy: 'Without the default policy',
  bind_secret_id: 'Requires a secret ID',
  secret_id_ttl: 'TTL of a secret ID',
  secret_id_num_uses: 'Uses of a secret ID',
  secret_id_bound_cidrs: 'Secret IDs bound to addresses',
  local_secret_ids: 'Local secret IDs',
}

/** Names and values of the settings of a user or role; those that are not set are left out. */
export function memberRows(data: MemberData): readonly (readonly [string, string])[] {
  const order = Object.keys(LABELS)
  return Object.entries(data)
    .filter(([, value]) => value !== null && value !== 0 && value !== '' && value !== false)
    .filter(([, value]) => !Array.isArray(value) || value.length > 0)
    .toSorted(([a], [b]) => order.indexOf(a) - order.indexOf(b))
    .map(([name, value]) => [LABELS[name] ?? name, valueText(name, value)])
}

function valueText(name: string, value: unknown): string {
  if (Array.isArray(value)) return value.map(String).join(', ')
  if (value === true) return 'yes'
  if (typeof value === 'number' && /ttl|period/.test(name)) return `${value} s`
  return typeof value === 'string' || typeof value === 'number' ? String(value) : JSON.stringify(value)
}
