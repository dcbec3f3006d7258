/**
 * A core with a mount of the cloud engine and an AWS endpoint that the test accesses through its API only: that of this
 * repository, or OUTPOST_AWS_ENDPOINT. OUTPOST_AWS_LACKS lists features that the endpoint lacks, such as
 * `boundary,trust`; tests that need them are skipped.
 */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import type { TestContext } from 'node:test'
import { IAM } from '@aws-sdk/client-iam'
import { STS } from '@aws-sdk/client-sts'
import { cloud } from '../../../src/engines/cloud/cloud.ts'
import { type CoreAnswer, CoreWorld } from '../core-world.ts'
import { AwsEndpoint } from './endpoint.ts'

/** Features that an emulator may lack, each with the behavior of AWS. */
export type Feature =
  /** Users have a permissions boundary. */
  | 'boundary'
  /** Requests with unknown or deleted keys are refused. */
  | 'keys'
  /** A role can be assumed by the principals of its trust policy, with its external ID, up to its maximum duration. */
  | 'trust'
  /** MFA is required. */
  | 'mfa'
  /** A session has the requested policies, and too large ones are refused. */
  | 'session-policies'
  /** SimulatePrincipalPolicy. */
  | 'simulation'
  /** A user with keys, groups or a login cannot be deleted. */
  | 'conflicts'

interface Place {
  readonly url: string
  readonly keyId: string
  readonly secret: string
}

const REGION = 'us-east-1'

async function locationOf(t: TestContext): Promise<Place> {
  const url = process.env['OUTPOST_AWS_ENDPOINT']
  if (url)
    return {
      url,
      keyId: process.env['AWS_ACCESS_KEY_ID'] ?? 'test',
      secret: process.env['AWS_SECRET_ACCESS_KEY'] ?? 'test',
    }
  const endpoint = await AwsEndpoint.open(t)
  const { key } = endpoint.root('administrator')
  return { url: endpoint.url, keyId: key.id, secret: key.secret }
}

/** False if the endpoint behaves like AWS; otherwise the reason to skip the test. */
export function lacks(feature: Feature): string | false {
  const all = (process.env['OUTPOST_AWS_LACKS'] ?? '').split(',')
  return all.includes(feature) ? `the endpoint has no ${feature}` : false
}

export class PortableWorld {
  readonly url: string
  /** The key of the account administrator. */
  readonly iam: IAM
  readonly sts: STS
  readonly world: CoreWorld
  /** Part of every created name, so that concurrent runs on one endpoint do not conflict. */
  readonly run = randomBytes(4).toString('hex')
  /** The user of the key in config/root. */
  readonly rootName = `root-${this.run}`
  rootKey = ''

  private constructor(place: Place, world: CoreWorld) {
    this.url = place.url
    this.world = world
    const options = clientOptions(place.url, place.keyId, place.secret)
    this.iam = new IAM(options)
    this.sts = new STS(options)
  }

  static async open(t: TestContext): Promise<PortableWorld> {
    const place = await locationOf(t)
    const world = await CoreWorld.open(t, { engines: [cloud] })
    const own = new PortableWorld(place, world)
    t.after(() => {
      own.iam.destroy()
      own.sts.destroy()
    })
    await own.iam.createUser({ UserName: own.rootName })
    const { AccessKey } = await own.iam.createAccessKey({ UserName: own.rootName })
    own.rootKey = AccessKey?.AccessKeyId ?? ''
    await own.good('POST', 'sys/mounts/cloud', { type: 'cloud' })
    await own.good('POST', 'cloud/config/root', {
      access_key: own.rootKey,
      secret_key: AccessKey?.SecretAccessKey,
      region: REGION,
      iam_endpoint: own.url,
      sts_endpoint: own.url,
      username_template: `{{ if (eq .Type "STS") }}{{ printf "f-${own.run}-%s" (random 12) }}{{ else }}{{ printf "u-${own.run}-%s-%s" (.PolicyName) (random 12) }}{{ end }}`,
    })
    return own
  }

  ask(method: string, path: string, body?: unknown): Promise<CoreAnswer> {
    return this.world.ask(method, path, body)
  }

  /** Like `ask`, but fails for a status of 400 and above. */
  async good(method: string, path: string, body?: unknown): Promise<CoreAnswer> {
    const answer = await this.ask(method, path, body)
    assert.ok(answer.status < 400, `${method} ${path}: ${answer.status} ${answer.text}`)
    return answer
  }

  /** Names of the users that this mount has created, listed by IAM. */
  async users(): Promise<string[]> {
    const found: string[] = []
    let Marker: string | undefined
    do {
      const page = await this.iam.listUsers({ ...(Marker !== undefined && { Marker }) })
      found.push(...(page.Users ?? []).map(({ UserName = '' }) => UserName))
      Marker = page.IsTruncated === true ? page.Marker : undefined
    } while (Marker !== undefined)
    return found.filter((name) => name.startsWith(`u-${this.run}-`))
  }

  async keys(UserName: string): Promise<string[]> {
    const { AccessKeyMetadata = [] } = await this.iam.listAccessKeys({ UserName })
    return AccessKeyMetadata.map(({ AccessKeyId = '' }) => AccessKeyId)
  }

  /** The ARN of the holder of credentials according to AWS. */
  async whoIs({ data }: { readonly data: Readonly<Record<string, unknown>> }): Promise<string> {
    const { access_key: id, secret_key: secret, session_token: token } = data
    const sts = new STS(
      clientOptions(this.url, String(id), String(secret), typeof token === 'string' ? token : undefined),
    )
    try {
      return (await sts.getCallerIdentity({})).Arn ?? ''
    } finally {
      sts.destroy()
    }
  }

  /** Creates an IAM role that its account may assume; resolves with its ARN. */
  async role(name: string, { actions = ['sts:AssumeRole'], externalId = '' } = {}): Promise<string> {
    const { Account } = await this.sts.getCallerIdentity({})
    const statement = {
      Effect: 'Allow',
      Principal: { AWS: `arn:aws:iam::${Account}:root` },
      Action: actions,
      ...(externalId !== '' && { Condition: { StringEquals: { 'sts:ExternalId': externalId } } }),
    }
    const AssumeRolePolicyDocument = JSON.stringify({ Version: '2012-10-17', Statement: [statement] })
    const { Role } = await this.iam.createRole({ RoleName: `${name}-${this.run}`, AssumeRolePolicyDocument })
    return Role?.Arn ?? ''
  }
}

function clientOptions(endpoint: string, accessKeyId: string, secretAccessKey: string, sessionToken?: string) {
  const credentials = { accessKeyId, secretAccessKey, ...(sessionToken !== undefined && { sessionToken }) }
  return { endpoint, region: REGION, credentials, maxAttempts: 1 }
}
