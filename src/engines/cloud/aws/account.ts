/**
 * ARNs, and the AWS account in which a resource was created. `config/root` may be changed to another account or endpoint later. A
 * resource that is not found there may still exist, and a user of the same name there is a different user.
 */
import * as v from 'valibot'
import { AwsFailure, invalidResponse } from './aws-failure.ts'

const locationSchema = v.object({
  partition: v.string(),
  account: v.string(),
  /** URL of IAM; empty for all endpoints of AWS. */
  endpoint: v.string(),
})

export type AccountLocation = Readonly<v.InferOutput<typeof locationSchema>>

/** Unknown in records of earlier versions. */
export const locationField = v.optional(locationSchema)

const AWS_HOST = /(^|\.)(amazonaws\.com(\.cn)?|api\.aws|amazonwebservices\.com\.cn)$/

/** `arn`: of a resource in the account. `endpoint`: a URL, undefined for that of AWS. Throws an AwsFailure. */
export function locationOf(arn: string | undefined, endpoint: string | undefined): AccountLocation {
  const parsed = parseArn(arn ?? '')
  if (typeof parsed === 'string' || parsed.account === '') throw invalidResponse('no account')
  const url = endpoint === undefined ? null : URL.parse(endpoint)
  const isAws = !url || AWS_HOST.test(url.hostname)
  return { partition: parsed.partition, account: parsed.account, endpoint: isAws ? '' : url.origin + url.pathname }
}

/** An unknown location matches any. */
export function isSameLocation(one: AccountLocation | undefined, other: AccountLocation | undefined): boolean {
  return !one || !other || locationText(one) === locationText(other)
}

/** Throws an AwsFailure if a resource was created in another account than the current one. */
export function checkLocation(created: AccountLocation | undefined, current: AccountLocation): void {
  if (!created || isSameLocation(created, current)) return
  const [before, now] = [locationText(created), locationText(current)]
  const text = `it was created in ${before}, but config/root is for ${now}: write credentials of the former to config/root`
  throw new AwsFailure('', text, 0, false)
}

function locationText({ account, endpoint, partition }: AccountLocation): string {
  const name = partition === 'aws' ? `account ${account}` : `account ${account} of ${partition}`
  return endpoint === '' ? name : `${name} at ${endpoint}`
}

/** `arn:PARTITION:SERVICE:REGION:ACCOUNT:RESOURCE` */

export interface Arn {
  readonly partition: string
  readonly service: string
  readonly account: string
  readonly resource: string
}

/** The parts of an ARN, or why it is invalid. */
export function parseArn(text: string): Arn | string {
  if (!text.startsWith('arn:')) return 'arn: invalid prefix'
  const [, partition = '', service = '', , account = '', ...resource] = text.split(':')
  if (resource.length === 0) return 'arn: not enough sections'
  return { partition, service, account, resource: resource.join(':') }
}

/** Why a text is not the ARN of a policy or role; undefined if it is. */
export function arnFault(text: string, kind: 'policy' | 'role'): string | undefined {
  const arn = parseArn(text)
  if (typeof arn === 'string') return arn
  if (arn.service !== 'iam') return `expected a service of iam but got ${arn.service}`
  const [type = ''] = arn.resource.split('/')
  if (type !== kind || arn.resource === kind) return `expected a resource type of ${kind} but got ${type}`
  return undefined
}
