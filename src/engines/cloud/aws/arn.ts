/** Names of resources of AWS: `arn:PARTITION:SERVICE:REGION:ACCOUNT:RESOURCE`. */

export interface Arn {
  readonly partition: string
  readonly service: string
  readonly account: string
  readonly resource: string
}

/** The parts of an ARN, or why it is none. */
export function parseArn(text: string): Arn | string {
  if (!text.startsWith('arn:')) return 'arn: invalid prefix'
  const [, partition = '', service = '', , account = '', ...resource] = text.split(':')
  if (resource.length === 0) return 'arn: not enough sections'
  return { partition, service, account, resource: resource.join(':') }
}

/** Why a text is no ARN of a policy or of a role; undefined where it is one. */
export function arnFault(text: string, kind: 'policy' | 'role'): string | undefined {
  const arn = parseArn(text)
  if (typeof arn === 'string') return arn
  if (arn.service !== 'iam') return `expected a service of iam but got ${arn.service}`
  const [type = ''] = arn.resource.split('/')
  if (type !== kind || arn.resource === kind) return `expected a resource type of ${kind} but got ${type}`
  return undefined
}
