/** What the policies of groups of IAM say, for sessions: their managed policies, and their inline ones. */
import type { IamClient } from './aws.ts'

const PAGES_MAX = 20

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
    documents.push(...(await inlineOf(iam(), GroupName, signal)))
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

async function inlineOf(iam: IamClient, GroupName: string, signal: AbortSignal): Promise<string[]> {
  const names: string[] = []
  let Marker: string | undefined
  for (let page = 0; page < PAGES_MAX; page++) {
    const input = { GroupName, ...(Marker !== undefined && { Marker }) }
    const answer = await iam.call((client, options) => client.listGroupPolicies(input, options), { signal })
    names.push(...(answer.PolicyNames ?? []))
    Marker = answer.IsTruncated === true ? answer.Marker : undefined
    if (Marker === undefined) break
  }
  const documents: string[] = []
  for (const PolicyName of names) {
    const input = { GroupName, PolicyName }
    const { PolicyDocument = '' } = await iam.call((client, options) => client.getGroupPolicy(input, options), {
      signal,
    })
    // AWS returns it as a part of a form.
    documents.push(decodeURIComponent(PolicyDocument.replaceAll('+', ' ')))
  }
  return documents
}
