/** Requests about one-time codes: keys of the engine, and the second factor of the caller. */
import { ApiError, listSecrets, secrets, secretsPath, send } from '../../api/client.ts'
import { readMountsOfView } from '../access/secret-mounts.ts'
import { serverOffsetMs } from './countdown.ts'

export interface KeyRow {
  readonly mount: string
  readonly name: string
}

export interface TotpKey {
  readonly account_name: string
  readonly algorithm: string
  readonly digits: number
  readonly issuer: string
  readonly period: number
}

export interface KeyList {
  readonly mounts: readonly string[]
  readonly rows: readonly KeyRow[]
  /** Mounts whose keys the token may not list. */
  readonly hidden: readonly string[]
}

export async function listKeys(signal: AbortSignal): Promise<KeyList> {
  const mounts = await readMountsOfView('totp', signal)
  const hidden: string[] = []
  const rows = await Promise.all(
    mounts.map(async (mount) => {
      try {
        return (await listSecrets(`${mount}/keys`, { signal })).map((name) => ({ mount, name }))
      } catch (error) {
        if (!(error instanceof ApiError) || !error.isForbidden) throw error
        hidden.push(mount)
        return []
      }
    }),
  )
  return { mounts, rows: rows.flat(), hidden }
}

export async function readKey(mount: string, name: string, signal: AbortSignal): Promise<TotpKey> {
  return (await secrets<TotpKey>(`${mount}/keys/${name}`, { signal })).data
}

export interface Code {
  readonly code: string
  readonly offsetMs: number
}

export async function readCode(mount: string, name: string, signal?: AbortSignal): Promise<Code> {
  const response = await send(secretsPath(`${mount}/code/${name}`), { signal })
  const offsetMs = serverOffsetMs(response.headers.get('Date'), Date.now())
  const { data } = (await response.json()) as { readonly data: { readonly code: string } }
  return { code: data.code, offsetMs }
}

export async function verifyCode(mount: string, name: string, code: string): Promise<boolean> {
  const { data } = await secrets<{ valid: boolean }>(`${mount}/code/${name}`, { method: 'POST', body: { code } })
  return data.valid
}

/** A key that the server generated; shown once. */
export interface GeneratedKey {
  /** PNG in base64. */
  readonly barcode?: string
  readonly url?: string
  readonly secret?: string
  readonly recovery_codes?: readonly string[]
  /** False if it takes effect after its first code. */
  readonly confirmed?: boolean
}

export interface KeyDraft {
  readonly mount: string
  readonly name: string
  readonly isGenerated: boolean
  readonly issuer: string
  readonly account: string
  /** `otpauth://…`, or the key in base32. */
  readonly imported: string
}

const QR_PIXELS = 240

/** Resolves with the key if the server generated it. */
export async function writeKey(draft: KeyDraft): Promise<GeneratedKey | undefined> {
  const { account, imported, isGenerated, issuer, mount, name } = draft
  const about = { issuer, account_name: account }
  const source = imported.startsWith('otpauth:') ? { url: imported } : { key: imported.replaceAll(/\s/g, ''), ...about }
  const body = isGenerated ? { generate: true, qr_size: QR_PIXELS, ...about } : source
  const answer = (await secrets<GeneratedKey | null>(`${mount}/keys/${name}`, { method: 'POST', body })) as
    | { readonly data: GeneratedKey | null }
    | undefined
  return answer?.data ?? undefined
}

export async function deleteKey(mount: string, name: string): Promise<void> {
  await secrets(`${mount}/keys/${name}`, { method: 'DELETE' })
}

export interface MfaMethodInfo {
  readonly name: string
  readonly issuer: string
  readonly digits: number
  readonly period: number
  readonly algorithm: string
  readonly recovery_codes: number
  readonly require_confirmation: boolean
}

const METHODS = 'sys/mfa/method/totp'

export async function listMethods(signal: AbortSignal): Promise<readonly MfaMethodInfo[]> {
  try {
    const { data } = await secrets<{ key_info?: Readonly<Record<string, MfaMethodInfo>> }>(METHODS, {
      query: { list: true },
      signal,
    })
    return Object.values(data.key_info ?? {})
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return []
    throw error
  }
}

export interface EnrolmentState {
  readonly confirmed: boolean
  readonly creation_time: string
  readonly last_used_time: string | null
  readonly locked: boolean
  readonly recovery_codes_left: number
}

/** Undefined if the entity has no secret, or the token may not read its state. */
export async function readEnrolment(
  method: string,
  entityId: string,
  signal: AbortSignal,
): Promise<EnrolmentState | undefined> {
  const answer = await secrets<EnrolmentState>(`${METHODS}/${method}/entity/${entityId}`, { signal }).catch(
    (error: unknown) => {
      if (error instanceof ApiError && (error.status === 404 || error.isForbidden)) return undefined
      throw error
    },
  )
  return answer?.data
}

export function generatePath(method: string): string {
  return `${METHODS}/${method}/generate`
}

/** Generates the secret of the caller. Rejects if there is one already. */
export async function enrol(method: string): Promise<GeneratedKey> {
  const answer = await secrets<GeneratedKey | null>(generatePath(method))
  if (!answer.data) {
    throw new Error(
      'You have a secret for this method already. An administrator can replace it: outpost mfa totp replace',
    )
  }
  return answer.data
}

export async function confirmEnrolment(method: string, code: string): Promise<void> {
  await secrets(`${METHODS}/${method}/confirm`, { method: 'POST', body: { passcode: code.replaceAll(/\s/g, '') } })
}
