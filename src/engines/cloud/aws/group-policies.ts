/** What the policies of groups of IAM say, for sessions: their managed policies, and their inline ones. */
import type { IamClient } from './aws.ts'
import { strangeAnswer } from './aws-failure.ts'

/** A page has 100 of them; AWS has 10 managed policies of a group, and inline ones of 5,120 characters together. */
const PAGES_MAX = 2
/** Of all groups of a role: each is a call. */
const DOCUMENTS_MAX = 100
/** AWS has 5,120 characters of one group, three times as long where they are encoded. */
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
    documents.push(...(await inlineOf(iam(), GroupName, { signal, most: DOCUMENTS_MAX - documents.length })))
  }
  return { arns, documents }
}

async function attachedOf(iam: IamClient, GroupName: string, signal: AbortSignal): Promise<string[]> {
  const found: string[] = []
  let Marker: string | undefined
  for (let page = 0; page < PAGES_MAX; page++) {
    const input = { GroupName, ...(Marker !== undefined && { Marker }) }
    const answer = await iam.call((client, options) => client.listAttachedGroupPolicies(input, options), { signal })
    for (const { PolicyArn } of answer.AttachedPolicies ?? []) if (PolicyArn !== undefined) found.push(PolicyArn)
    Marker = answer.IsTruncated === true ? answer.Marker : undefined
    if (Marker === undefined) break
  }
  return found
}

async function inlineOf(
  iam: IamClient,
  GroupName: string,
  { most, signal }: { readonly most: number; readonly signal: AbortSignal },
): Promise<string[]> {
  const names: string[] = []
  let Marker: string | undefined
  for (let page = 0; page < PAGES_MAX; page++) {
    const input = { GroupName, ...(Marker !== undefined && { Marker }) }
    const answer = await iam.call((client, options) => client.listGroupPolicies(input, options), { signal })
    names.push(...(answer.PolicyNames ?? []))
    Marker = answer.IsTruncated === true ? answer.Marker : undefined
    if (Marker === undefined) break
  }
  if (names.length > most) throw strangeAnswer('more policies than a group has')
  const documents: string[] = []
  let length = 0
  for (const PolicyName of names) {
    const input = { GroupName, PolicyName }
    const { PolicyDocument = '' } = await iam.call((client, options) => client.getGroupPolicy(input, options), {
      signal,
    })
    documents.push(decoded(PolicyDocument))
    length += PolicyDocument.length
    if (length > DOCUMENTS_LENGTH_MAX) throw strangeAnswer('more policies than a group has')
  }
  return documents
}

/** AWS returns it as a part of a form. */
function decoded(document: string): string {
  try {
    return decodeURIComponent(document.replaceAll('+', ' '))
  } catch {
    throw strangeAnswer('a policy that is not encoded')
  }
}
