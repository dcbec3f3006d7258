/**
 * The session: token, permissions, and what the server of the page offers.
 *
 * The token is in the memory of the page. If the user chooses so, it is in session storage as well, which ends with the tab. It is
 * never in a URL, a cookie or local storage.
 */
import { computed, signal } from '@preact/signals'
import { ApiError, read, secrets, sendJson, setRefusalListener, setTokenSource } from '../api/client.ts'
import type { AgentPermissions } from '../api/types.ts'

const STORED_TOKEN = 'outpost.token'
/** Set beside the stored token if a login of this tab created it. */
const STORED_ORIGIN = 'outpost.token-is-own'
/** Readable with each valid token, whatever its policies are. */
const FOR_EACH_TOKEN = '/v1/sys/internal/ui/mounts'
const SENDABLE = /^[\x21-\x7e]+$/

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
/** Why the last session ended without a logout; shown by the login dialog. */
export const sessionEnd = signal<string | undefined>(undefined)
/** Changes with each login and logout: the views start again, without the state of the session before. */
export const sessionRound = signal(0)
/** True if this page created the token by a login, and therefore revokes it at logout. */
let isOwnToken = sessionStorage.getItem(STORED_ORIGIN) !== null

export const hasSecrets = computed(() => features.value?.seal !== undefined)
export const isSealed = computed(() => features.value?.seal?.sealed === true)
/** In the namespace `default`. */
export const mayReadJobs = computed(() => permissions.value?.Capabilities.includes('read-job') === true)
/** True without a token, unless the server shows jobs to anonymous callers. */
export const needsLoginForJobs = computed(() => token.value === undefined && !mayReadJobs.value)
export const mayReadHosts = computed(() => permissions.value?.Node.includes('read') === true)
export const mayChangeHosts = computed(() => permissions.value?.Node.includes('write') === true)

setTokenSource(() => token.value)
let verification: Promise<void> | undefined
setRefusalListener(() => {
  verification ??= endIfInvalid().finally(() => (verification = undefined))
})

/** Uses a token after the server has accepted it. Rejects, and keeps the old one, if it does not. */
export async function logIn(
  given: string,
  options: { readonly remember: boolean; readonly isOwn: boolean },
): Promise<void> {
  if (given === '') throw new ApiError(400, 'Enter a token.')
  if (!SENDABLE.test(given)) throw new ApiError(400, 'This is not a token: it contains spaces or special characters.')
  await requireValid(given)
  isOwnToken = options.isOwn
  store(options.remember ? given : undefined)
  token.value = given
  tokenInfo.value = undefined
  sessionEnd.value = undefined
  sessionRound.value++
  await refreshSession().catch(() => undefined)
}

/** Forgets the token; revokes it if a login of this page created it. */
export async function logOut(): Promise<void> {
  if (isOwnToken) await secrets('auth/token/revoke-self', { method: 'POST' }).catch(() => undefined)
  forgetToken()
  await refreshSession().catch(() => undefined)
}

/** Ends the session of this page only: a token in session storage is used again when the page is loaded. */
export function forgetInPage(): void {
  token.value = undefined
  tokenInfo.value = undefined
  sessionRound.value++
}

function store(given: string | undefined): void {
  sessionStorage.removeItem(STORED_TOKEN)
  sessionStorage.removeItem(STORED_ORIGIN)
  if (given === undefined) return
  sessionStorage.setItem(STORED_TOKEN, given)
  if (isOwnToken) sessionStorage.setItem(STORED_ORIGIN, 'true')
}

function forgetToken(): void {
  isOwnToken = false
  store(undefined)
  token.value = undefined
  tokenInfo.value = undefined
  sessionRound.value++
}

/** Rejects if the server does not know the token. A server that cannot tell, such as a sealed one, does not reject. */
async function requireValid(given: string): Promise<void> {
  const headers = { Authorization: `Bearer ${given}` }
  if (hasSecrets.value) {
    await sendJson(FOR_EACH_TOKEN, { headers }).catch((error: unknown) => {
      if (!(error instanceof ApiError) || error.isConnection) throw error
      if (error.isForbidden)
        throw new ApiError(403, 'The server does not know this token: it is wrong, expired or revoked.')
    })
  }
  await sendJson('/v1/agent/permissions', { headers }).catch((error: unknown) => {
    // A sealed or fenced core, or a DR secondary. A fenced primary is demoted with a token.
    if (!hasSecrets.value || !(error instanceof ApiError) || error.status !== 503) throw error
  })
}

/** Ends the session if its token has expired or was revoked. */
async function endIfInvalid(): Promise<void> {
  const given = token.value
  if (given === undefined || !hasSecrets.value || isSealed.value) return
  try {
    await sendJson(FOR_EACH_TOKEN, { headers: { Authorization: `Bearer ${given}` } })
  } catch (error) {
    if (!(error instanceof ApiError) || !error.isForbidden || token.value !== given) return
    forgetToken()
    sessionEnd.value = 'Your token has expired or was revoked. Log in to continue.'
  }
}

/** Reads what the server offers and what the token permits. */
export async function refreshSession(): Promise<void> {
  const [health, seal] = await Promise.all([
    sendJson<Readonly<Record<string, unknown>>>('/v1/agent/health').catch(() => ({})),
    sendJson<SealStatus>('/v1/sys/seal-status').catch(() => undefined),
  ])
  features.value = { isServer: 'server' in health, isClient: 'client' in health, seal }
  await endIfInvalid()
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
