/**
 * In which account of which AWS a thing was made. `config/root` may be pointed at another account or endpoint meanwhile: what is
 * not found there is not gone, and a user there that has the same name is another one.
 */
import * as v from 'valibot'
import { parseArn } from './arn.ts'
import { AwsFailure, strangeAnswer } from './aws-failure.ts'

export const placeSchema = v.object({
  partition: v.string(),
  account: v.string(),
  /** URL of IAM; empty for that of AWS, by whichever name. */
  endpoint: v.string(),
})

export type Place = Readonly<v.InferOutput<typeof placeSchema>>

/** Of entries of earlier versions it is not known. */
export const placeField = v.optional(placeSchema)

const AWS_HOST = /(^|\.)(amazonaws\.com(\.cn)?|api\.aws|amazonwebservices\.com\.cn)$/

/** `arn`: of something in the account. `endpoint`: a URL, undefined for that of AWS. Throws an AwsFailure. */
export function placeOf(arn: string | undefined, endpoint: string | undefined): Place {
  const parsed = parseArn(arn ?? '')
  if (typeof parsed === 'string' || parsed.account === '') throw strangeAnswer('no account')
  const url = endpoint === undefined ? null : URL.parse(endpoint)
  const isAws = !url || AWS_HOST.test(url.hostname)
  return { partition: parsed.partition, account: parsed.account, endpoint: isAws ? '' : url.origin + url.pathname }
}

/** What is not known is taken for the same. */
export function isSamePlace(one: Place | undefined, other: Place | undefined): boolean {
  return !one || !other || shownPlace(one) === shownPlace(other)
}

/** Throws an AwsFailure where what was made in one place is looked for in another one. */
export function checkPlace(made: Place | undefined, now: Place): void {
  if (!made || isSamePlace(made, now)) return
  const [there, here] = [shownPlace(made), shownPlace(now)]
  const text = `it was made in ${there}, and config/root is that of ${here}: point config/root at the first one again`
  throw new AwsFailure('', text, 0, false)
}

function shownPlace({ account, endpoint, partition }: Place): string {
  const name = partition === 'aws' ? `account ${account}` : `account ${account} of ${partition}`
  return endpoint === '' ? name : `${name} at ${endpoint}`
}
