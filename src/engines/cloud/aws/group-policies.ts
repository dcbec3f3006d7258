/** Reads the managed and inline policies of IAM groups, for session policies. */
import type { IamClient } from './aws.ts'
import { invalidResponse } from './aws-failure.ts'

/** A page has 100 policies. AWS allows 10 managed policies per group, and inline policies of 5,120 characters in total. */
const PAGES_MAX = 2
/** For all groups of a role. Each document is a request. */
const DOCUMENTS_MAX = 100
/** AWS allows 5,120 characters per group, which may triple by URL encoding. */
const DOCUMENTS_LENGTH_MAX = 65_536

export interface GroupPolicies {
  readonly arns: readonly string[]
  readonly documents: readonly string[]
}

export async function groupPolicies(
  iam: () => IamClient,
  groups: readonly string[],
  signal: AbortSignal,
): Promise<GroupPolicies> {
  const [arns, documents]: [string[], string[]] = [[], []]
  for (const GroupName of groups) {
    arns.push(...(await attachedOf(iam(), GroupName, signal)))
    documents.push(...(await inlineOf(iam(), GroupName, { signal, documentsMax: DOCUMENTS_MAX - documents.length })))
  }
  return { arns, documents }
}

async function attachedOf(iam: IamClient, GroupName: string, signal: AbortSignal): Promise<string[]> {
  const arns: string[] = []
  let Marker: string | undefined
  for (let page = 0; page < PAGES_MAX; page++) {
    const input = { GroupName, ...(Marker !== undefined && { Marker }) }
    const response = await iam.call((client, options) => client.listAttachedGroupPolicies(input, options), { signal })
    for (const { PolicyArn } of response.AttachedPolicies ?? []) if (PolicyArn !== undefined) arns.push(PolicyArn)
    Marker = response.IsTruncated === true ? response.Marker : undefined
    if (Marker === undefined) break
  }
  return arns
}

async function inlineOf(
  iam: IamClient,
  GroupName: string,
  { documentsMax, signal }: { readonly documentsMax: number; readonly signal: AbortSignal },
): Promise<string[]> {
  const names: string[] = []
  let Marker: string | undefined
  for (let page = 0; page < PAGES_MAX; page++) {
    const input = { GroupName, ...(Marker !== undefined && { Marker }) }
    const response = await iam.call((client, options) => client.listGroupPolicies(input, options), { signal })
    names.push(...(response.PolicyNames ?? []))
    Marker = response.IsTruncated === true ? response.Marker : undefined
    if (Marker === undefined) break
  }
  if (names.length > documentsMax) throw invalidResponse('more policies than a group has')
  const documents: string[] = []
  let length = 0
  for (const PolicyName of names) {
    const input = { GroupName, PolicyName }
    const { PolicyDocument = '' } = await iam.call((client, options) => client.getGroupPolicy(input, options), {
      signal,
    })
    documents.push(decoded(PolicyDocument))
    length += PolicyDocument.length
    if (length > DOCUMENTS_LENGTH_MAX) throw invalidResponse('more policies than a group has')
  }
  return documents
}

/** AWS URL-encodes documents. */
function decoded(document: string): string {
  try {
    return decodeURIComponent(document.replaceAll('+', ' '))
  } catch {
    throw invalidResponse('a policy that is not URL-encoded')
  }
}
