/**
 * The session: token, permissions, and what the server of the page offers.
 *
 * The token is in the memory of the page. If the user chooses so, it is in session storage as well, which ends with the tab. It is
 * never in a URL, a cookie or local storage.
 */
import { computed, signal } from '@preact/signals'
import { ApiError, read, secrets, sendJson, setTokenSource } from '../api/client.ts'
import type { AgentPermissions } from '../api/types.ts'

const STORED_TOKEN = 'outpost.token'

/** What a token is, from its lookup. */
export interface TokenInfo {
  readonly accessor: string
  readonly display_name: string
  readonly policies: readonly string[]
  readonly ttl: number
  readonly expire_time: string | null
  readonly entity_id: string
}

export interface SealStatus {
  readonly initialized: boolean
  readonly sealed: boolean
  readonly t: number
  readonly n: number
  readonly progress: number
  readonly type: string
  readonly cluster_name?: string
  readonly cluster_id?: string
}

/** The roles of the process that serves the page, and the state of the secrets core behind it. */
export interface Features {
  readonly isServer: boolean
  readonly isClient: boolean
  /** Undefined without a secrets core. */
  readonly seal: SealStatus | undefined
}

export const token = signal<string | undefined>(sessionStorage.getItem(STORED_TOKEN) ?? undefined)
export const tokenInfo = signal<TokenInfo | undefined>(undefined)
export const permissions = signal<AgentPermissions | undefined>(undefined)
export const features = signal<Features | undefined>(undefined)
/** Why the session cannot be used; shown by the page. */
export const sessionError = signal<ApiError | undefined>(undefined)
/** True if this page created the token by a login, and therefore revokes it at logout. */
let isOwnToken = false

export const hasSecrets = computed(() => features.value?.seal !== undefined)
export const isSealed = computed(() => features.value?.seal?.sealed === true)
export const mayReadHosts = computed(() => permissions.value?.Node.includes('read') === true)
export const mayChangeHosts = computed(() => permissions.value?.Node.includes('write') === true)

setTokenSource(() => token.value)

/** Uses a token after the server has accepted it. Rejects, and keeps the old one, if it does not. */
export async function logIn(
  given: string,
  options: { readonly remember: boolean; readonly isOwn: boolean },
): Promise<void> {
  const before = token.value
  token.value = given
  try {
    await refreshSession()
  } catch (error) {
    token.value = before
    throw error
  }
  isOwnToken = options.isOwn
  if (options.remember) sessionStorage.setItem(STORED_TOKEN, given)
  else sessionStorage.removeItem(STORED_TOKEN)
}

/** Forgets the token; revokes it if a login of this page created it. */
export async function logOut(): Promise<void> {
  if (isOwnToken) await secrets('auth/token/revoke-self', { method: 'POST' }).catch(() => undefined)
  isOwnToken = false
  sessionStorage.removeItem(STORED_TOKEN)
  token.value = undefined
  tokenInfo.value = undefined
  await refreshSession().catch(() => undefined)
}

/** Reads what the server offers and what the token permits. */
export async function refreshSession(): Promise<void> {
  const [health, seal] = await Promise.all([
    sendJson<Readonly<Record<string, unknown>>>('/v1/agent/health').catch(() => ({})),
    sendJson<SealStatus>('/v1/sys/seal-status').catch(() => undefined),
  ])
  features.value = { isServer: 'server' in health, isClient: 'client' in health, seal }
  try {
    permissions.value = await read('/v1/agent/permissions')
    tokenInfo.value = await ownToken(seal)
    sessionError.value = undefined
  } catch (error) {
    permissions.value = undefined
    if (error instanceof ApiError) sessionError.value = error
    throw error
  }
}

async function ownToken(seal: SealStatus | undefined): Promise<TokenInfo | undefined> {
  if (token.value === undefined || seal === undefined || seal.sealed) return undefined
  const found = await secrets<TokenInfo>('auth/token/lookup-self').catch(() => undefined)
  return found?.data
}
