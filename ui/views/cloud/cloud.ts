/** Requests to a cloud engine. */
import { type Query, secrets, type SecretsResponse } from '../../api/client.ts'
import { type Credentials, credentialsOf } from './credential-formats.ts'

export interface CloudRole {
  readonly credential_type: string
  readonly role_arns: readonly string[] | null
  readonly policy_arns: readonly string[] | null
  readonly policy_document: string
  readonly iam_groups: readonly string[] | null
  readonly iam_tags: Readonly<Record<string, string>> | null
  readonly session_tags: Readonly<Record<string, string>> | null
  readonly default_sts_ttl: number
  readonly max_sts_ttl: number
  readonly user_path: string
  readonly permissions_boundary_arn: string
  readonly mfa_serial_number: string
  readonly external_id: string
}

export interface StaticRole {
  readonly name: string
  readonly username: string
  readonly rotation_period: number
  readonly assume_role_arn: string
}

export interface RootConfig {
  readonly access_key: string
  readonly region: string
  readonly iam_endpoint: string
  readonly sts_endpoint: string
  readonly role_arn: string
  readonly identity_token_audience: string
  readonly rotation_period: number
  readonly rotation_schedule: string
  readonly disable_automated_rotation: boolean
}

export interface Orphans {
  readonly orphans: readonly { readonly username: string; readonly created_time: string }[]
  readonly elsewhere?: readonly { readonly username: string; readonly account: string }[]
}

export interface RoleCheck {
  readonly result: string
  readonly findings: readonly string[]
}

/** Credentials with their lease. */
export interface IssuedCredentials {
  readonly credentials: Credentials
  /** Empty without a lease. */
  readonly leaseId: string
  readonly leaseSeconds: number
  readonly warnings: readonly string[]
}

export async function readData<Data>(path: string, signal?: AbortSignal): Promise<Data> {
  return (await secrets<Data>(path, { signal })).data
}

type CredsAnswer = SecretsResponse<Readonly<Record<string, unknown>>>

function issuedOf(answer: CredsAnswer, nowMs: number): IssuedCredentials {
  const { lease_duration: leaseSeconds, lease_id: leaseId, warnings } = answer
  return { credentials: credentialsOf(answer, nowMs), leaseId, leaseSeconds, warnings: warnings ?? [] }
}

export interface CredsDraft {
  readonly ttl: string
  readonly roleArn: string
  readonly sessionName: string
  readonly mfaCode: string
}

/** A read, as policies permit it; with a code of an MFA device an update, because a body does not appear in logs. */
export async function requestCredentials(path: string, draft: CredsDraft): Promise<IssuedCredentials> {
  const { mfaCode, roleArn, sessionName, ttl } = draft
  const parameters: Query = {
    ttl: ttl || undefined,
    role_arn: roleArn || undefined,
    role_session_name: sessionName || undefined,
  }
  const nowMs = Date.now()
  const options =
    mfaCode === '' ? { query: parameters } : { method: 'POST', body: { ...parameters, mfa_code: mfaCode } }
  return issuedOf(await secrets<Readonly<Record<string, unknown>>>(path, options), nowMs)
}

export async function readStaticCredentials(path: string): Promise<IssuedCredentials> {
  return issuedOf(await secrets<Readonly<Record<string, unknown>>>(path), Date.now())
}

export async function revokeLease(leaseId: string): Promise<void> {
  await secrets('sys/leases/revoke', { method: 'POST', body: { lease_id: leaseId, sync: true } })
}

/** A policy document with line ends; as it is if it is not JSON. */
export function readableDocument(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), undefined, 2)
  } catch {
    return text
  }
}
