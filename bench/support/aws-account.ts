/** Helper program: the AWS endpoint of the tests, which responds after `delayMs`. Sends its address, then its user count per message. */
import { AwsEndpoint } from '../../test/helpers/aws/endpoint.ts'
import { helperOptions } from './child.ts'

export interface AccountSaid {
  /** What `config/root` needs. */
  readonly root: Readonly<Record<'access_key' | 'secret_key' | 'iam_endpoint' | 'sts_endpoint' | 'region', string>>
  /** Beside the root's. */
  readonly users: number
}

if (import.meta.main) {
  const delayMs = Number(helperOptions()['delayMs'])
  const endpoint = await AwsEndpoint.open({ after: () => undefined })
  const { key } = endpoint.root()
  endpoint.account.addRole('deploy')
  if (delayMs > 0) endpoint.script('*', { delayMs, times: Number.POSITIVE_INFINITY })
  const root = {
    access_key: key.id,
    secret_key: key.secret,
    iam_endpoint: endpoint.url,
    sts_endpoint: endpoint.url,
    region: 'us-east-1',
  }
  const say = () => process.send?.({ root, users: endpoint.account.users.size - 1 } satisfies AccountSaid)
  process.on('message', say)
  say()
}
