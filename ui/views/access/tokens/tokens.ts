/** Requests about tokens. */
import { ApiError, type AuthResult, listSecrets, secrets } from '../../../api/client.ts'
import { tokenInfo } from '../../../app/session.ts'
import { mapLimited } from '../../../api/map-limited.ts'

export interface TokenData {
  readonly accessor: string
  readonly display_name: string
  readonly policies: readonly string[]
  readonly identity_policies?: readonly string[]
  readonly creation_time: number
  readonly creation_ttl: number
  readonly expire_time: string | null
  readonly explicit_max_ttl: number
  readonly entity_id: string
  readonly meta: Readonly<Record<string, string>> | null
  readonly num_uses: number
  readonly orphan: boolean
  readonly path: string
  readonly period?: number
  readonly renewable?: boolean
  readonly role?: string
  readonly bound_cidrs?: readonly string[]
  readonly ttl: number
  readonly type: string
}

export interface TokenRow {
  readonly accessor: string
  /** Undefined if it may not be looked up, or was revoked since the list was read. */
  readonly token: TokenData | undefined
}

export interface TokenPage {
  readonly rows: readonly TokenRow[]
  readonly hasMore: boolean
}

export const TOKEN_PAGE = 200
const LOOKUPS = 6

export async function lookUpToken(accessor: string, signal?: AbortSignal): Promise<TokenData> {
  try {
    const options = { method: 'POST', body: { accessor }, signal }
    return (await secrets<TokenData>('auth/token/lookup-accessor', options)).data
  } catch (error) {
    // Each token may look itself up.
    if (!(error instanceof ApiError) || !error.isForbidden || tokenInfo.value?.accessor !== accessor) throw error
    return (await secrets<TokenData>('auth/token/lookup-self', { signal })).data
  }
}

/** The tokens after an accessor, in the order of the server, with what the caller may see of each. */
export async function readTokenPage(after: string, signal?: AbortSignal): Promise<TokenPage> {
  const query = { limit: TOKEN_PAGE + 1, after }
  const accessors = await listSecrets('auth/token/accessors', { query, signal })
  let isForbidden = false
  const rows = await mapLimited(accessors.slice(0, TOKEN_PAGE), LOOKUPS, async (accessor): Promise<TokenRow> => {
    if (isForbidden) return { accessor, token: undefined }
    try {
      return { accessor, token: await lookUpToken(accessor, signal) }
    } catch (error) {
      if (!(error instanceof ApiError)) throw error
      isForbidden ||= error.isForbidden && tokenInfo.value?.accessor !== accessor
      return { accessor, token: undefined }
    }
  })
  return { rows, hasMore: accessors.length > TOKEN_PAGE }
}

/** Fields of a new token as typed. */
export interface TokenDraft {
  readonly policies: readonly string[]
  readonly ttl: string
  readonly displayName: string
  readonly uses: string
  readonly type: 'service' | 'batch'
  readonly isOrphan: boolean
  readonly hasDefaultPolicy: boolean
  readonly isRenewable: boolean
}

export async function createToken(draft: TokenDraft): Promise<AuthResult & { readonly warnings: readonly string[] }> {
  const path = draft.isOrphan ? 'auth/token/create-orphan' : 'auth/token/create'
  const { auth, warnings } = await secrets<unknown>(path, {
    method: 'POST',
    body: {
      policies: draft.policies,
      display_name: draft.displayName,
      type: draft.type,
      no_default_policy: !draft.hasDefaultPolicy,
      ...(draft.ttl !== '' && { ttl: draft.ttl }),
      ...(draft.uses !== '' && { num_uses: Number(draft.uses) }),
      ...(draft.type === 'service' && { renewable: draft.isRenewable }),
    },
  })
  if (!auth) throw new Error('The server returned no token.')
  return { ...auth, warnings: warnings ?? [] }
}

export function matchesToken({ accessor, token }: TokenRow, wanted: string): boolean {
  const text = wanted.trim().toLowerCase()
  if (text === '') return true
  const parts = [accessor, token?.display_name, token?.path, token?.entity_id, ...(token?.policies ?? [])]
  return parts.some((part) => part?.toLowerCase().includes(text))
}
