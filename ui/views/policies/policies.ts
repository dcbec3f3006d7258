/** Requests for policies. */
import { ApiError, listSecrets, secrets } from '../../api/client.ts'

export const POLICIES = 'sys/policies/acl'
/** It grants everything and has no document. */
export const ROOT = 'root'
/** Each token has it, and it cannot be deleted. */
export const DEFAULT = 'default'
/** `cas` of a policy that must not exist. */
const NEW = -1

export interface Policy {
  readonly name: string
  readonly policy: string
  readonly version: number
  readonly modified?: string
  readonly expiration?: string
  readonly cas_required: boolean
  readonly allow_slashes_in_identity_templates: boolean
  readonly allow_wildcards_in_identity_templates: boolean
}

export function policyPath(name: string): string {
  return `${POLICIES}/${name}`
}

export function listPolicies(signal?: AbortSignal): Promise<readonly string[]> {
  return listSecrets(POLICIES, { signal })
}

/** Undefined if there is none. */
export async function readPolicy(name: string, signal?: AbortSignal): Promise<Policy | undefined> {
  try {
    return (await secrets<Policy>(policyPath(name), { signal })).data
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return undefined
    throw error
  }
}

/** Replaces the document if the policy is still the one that was read; its settings stay. Returns the warnings of the server. */
export async function writePolicy(name: string, text: string, before: Policy | undefined): Promise<readonly string[]> {
  const settings = before && {
    cas: before.version,
    cas_required: before.cas_required,
    allow_slashes_in_identity_templates: before.allow_slashes_in_identity_templates,
    allow_wildcards_in_identity_templates: before.allow_wildcards_in_identity_templates,
    ...(before.expiration !== undefined && { expiration: before.expiration }),
  }
  const body = { policy: text, ...(settings ?? { cas: NEW }) }
  const answer = await secrets<unknown>(policyPath(name), { method: 'POST', body })
  return (answer as { readonly warnings?: readonly string[] | null } | undefined)?.warnings ?? []
}

export async function deletePolicy(name: string): Promise<void> {
  await secrets(policyPath(name), { method: 'DELETE' })
}

export function isPolicyConflict(error: unknown): boolean {
  return error instanceof ApiError && error.message.includes('did not match the current version')
}
