/** `config/root`: credentials and endpoints of AWS, and the username template. `config/lease`: TTLs of users. */
import * as v from 'valibot'
import { formatDuration } from '../../../platform/duration.ts'
import { type EngineCall, path, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import {
  anything,
  boolean,
  commaList,
  duration,
  type EngineInput,
  FieldError,
  integer,
  secondsOf,
  text,
} from '../../framework/fields.ts'
import { arnFault } from '../aws/account.ts'
import { StoredRecord, type ReadEntry } from '../../framework/records.ts'
import { ENTRY_PATHS } from '../aws/entries.ts'
import { DEFAULT_TEMPLATE, NO_ROOT, type RootConfig, rootOf, roots } from '../aws/root-record.ts'
import { checkTemplate } from '../templates/username.ts'
import { checkRotation } from './rotation-terms.ts'

const TEXT_LENGTH_MAX = 4096
const LIST_LENGTH_MAX = 32
const RETRIES_MAX = 20

const FIELDS = {
  access_key: text('Access key ID'),
  secret_key: text('Secret access key'),
  region: text('Region; default: that of the environment, else us-east-1'),
  iam_endpoint: text('URL of a custom IAM endpoint'),
  sts_endpoint: text('URL of a custom STS endpoint'),
  sts_region: text('Region of STS, if different'),
  sts_fallback_endpoints: commaList('URLs of fallback STS endpoints, in order'),
  sts_fallback_regions: commaList('Regions of the fallback endpoints, in the same order'),
  max_retries: integer('Number of retries of a failed request; -1 for 2'),
  username_template: text('Template for usernames and session names'),
  role_arn: text('ARN of the role to assume with an identity token'),
  identity_token_audience: text('Audience of identity tokens, instead of an access key'),
  identity_token_ttl: duration('TTL of identity tokens'),
  rotation_schedule: text('Rotation schedule: cron expression with five fields, in UTC'),
  rotation_window: duration('Time after the schedule within which the rotation may start'),
  rotation_period: duration('Rotation period of the access key'),
  disable_automated_rotation: boolean('Disable automated rotation'),
  rotation_policy: text('Stored for clients that set it; no effect'),
}

type RootInput = EngineInput<typeof FIELDS>

export const rootPaths: readonly Path[] = [
  path({
    pattern: 'config/root',
    summary: 'Read or write the AWS credentials and settings',
    fields: FIELDS,
    exists: (_input, { storage }) => rootOf((each) => storage.pending(each)) !== undefined,
    read(_input, { storage }) {
      const config = rootOf((each) => storage.get(each))
      return config && { data: configResponse(config) }
    },
    update(input, call) {
      const config = changedConfig(input, call)
      if (config.identityTokenAudience !== '') return writeFederated(input, call)
      return { batch: { puts: [roots.put(ENTRY_PATHS.root, config)], deletes: [] }, status: 204 }
    },
  }),
]

/** The configuration after a write. Throws a Rejection (400) for conflicting settings. */
function changedConfig(input: RootInput, { nowMs, storage }: EngineCall): RootConfig {
  checkPair(input)
  const config = withChanges(rootOf((each) => storage.pending(each)) ?? NO_ROOT, input, nowMs)
  check(config)
  return config
}

/** Stores the configuration only if a token can be signed. Whether AWS accepts it is not checked. */
async function writeFederated(input: RootInput, call: EngineCall): Promise<Reply> {
  const { identityTokenAudience: audience, identityTokenTtlSeconds: ttlSeconds } = changedConfig(input, call)
  const { issuer } = await call.mount.identityToken({ audience, ttlSeconds })
  // Read again, because other requests may have run.
  await call.storage.commit({ puts: [roots.put(ENTRY_PATHS.root, changedConfig(input, call))], deletes: [] })
  if (issuer.startsWith('https://')) return { status: 204 }
  const why = `AWS reads the keys of an issuer by HTTPS, and cannot read those of ${issuer}`
  return { warnings: [`${why}: write the public URL of this server to identity/oidc/config`] }
}

/** The values of a record whose fields were given. */
function withChanges(before: RootConfig, input: RootInput, nowMs: number): RootConfig {
  const template = input.username_template === '' ? DEFAULT_TEMPLATE : input.username_template
  const isKeyNew = input.access_key !== undefined && input.access_key !== before.accessKey
  return {
    format: 1,
    accessKey: input.access_key ?? before.accessKey,
    // Removing the access key removes its secret.
    secretKey: input.secret_key ?? (input.access_key === '' ? '' : before.secretKey),
    keyMadeAtMs: isKeyNew ? 0 : before.keyMadeAtMs,
    region: input.region ?? before.region,
    iamEndpoint: input.iam_endpoint ?? before.iamEndpoint,
    stsEndpoint: input.sts_endpoint ?? before.stsEndpoint,
    stsRegion: input.sts_region ?? before.stsRegion,
    stsFallbackEndpoints: [...(input.sts_fallback_endpoints ?? before.stsFallbackEndpoints)],
    stsFallbackRegions: [...(input.sts_fallback_regions ?? before.stsFallbackRegions)],
    maxRetries: input.max_retries ?? before.maxRetries,
    usernameTemplate: template ?? before.usernameTemplate,
    roleArn: input.role_arn ?? before.roleArn,
    identityTokenAudience: input.identity_token_audience ?? before.identityTokenAudience,
    identityTokenTtlSeconds: input.identity_token_ttl ?? before.identityTokenTtlSeconds,
    rotationSchedule: input.rotation_schedule ?? before.rotationSchedule,
    rotationWindowSeconds: input.rotation_window ?? before.rotationWindowSeconds,
    rotationPeriodSeconds: input.rotation_period ?? before.rotationPeriodSeconds,
    isRotationDisabled: input.disable_automated_rotation ?? before.isRotationDisabled,
    rotationPolicy: input.rotation_policy ?? before.rotationPolicy,
    rotationFromMs: nowMs,
  }
}

/** Throws a Rejection (400) for half of a key pair, which must not be combined with the stored half. An empty `access_key` removes both. */
function checkPair({ access_key: accessKey = '', secret_key: secretKey = '' }: RootInput): void {
  if (accessKey !== '' && secretKey === '') throw new Rejection(400, "'access_key' requires 'secret_key'")
  if (secretKey !== '' && accessKey === '') throw new Rejection(400, "'secret_key' requires 'access_key'")
}

/** Throws a Rejection (400) for conflicting settings. Whether AWS accepts the credentials is not checked. */
function check(config: RootConfig): void {
  const { accessKey, identityTokenAudience, secretKey, stsFallbackEndpoints, stsFallbackRegions } = config
  checkSizes(config)
  if (stsFallbackEndpoints.length !== stsFallbackRegions.length) {
    throw new Rejection(400, 'fallback endpoints and fallback regions must be the same length')
  }
  checkRotation(config)
  checkTemplate(config.usernameTemplate)
  if (identityTokenAudience !== '' && accessKey !== '') {
    throw new Rejection(400, "only one of 'access_key' or 'identity_token_audience' can be set")
  }
  if (identityTokenAudience !== '' && config.roleArn === '') {
    throw new Rejection(400, "missing required 'role_arn' when 'identity_token_audience' is set")
  }
  const fault = identityTokenAudience === '' ? undefined : arnFault(config.roleArn, 'role')
  if (fault !== undefined) throw new Rejection(400, `'role_arn' is not the ARN of a role: ${fault}`)
  if (secretKey !== '' && accessKey === '') throw new Rejection(400, "'secret_key' requires 'access_key'")
  if (accessKey !== '' && secretKey === '') throw new Rejection(400, "'access_key' requires 'secret_key'")
  checkEndpoint('iam_endpoint', config.iamEndpoint)
  checkEndpoint('sts_endpoint', config.stsEndpoint)
  for (const endpoint of stsFallbackEndpoints) checkEndpoint('sts_fallback_endpoints', endpoint)
}

function checkSizes(config: RootConfig): void {
  const lists = [config.stsFallbackEndpoints, config.stsFallbackRegions]
  const texts = Object.values(config).filter((each) => typeof each === 'string')
  if ([...texts, ...lists.flat()].some((each) => each.length > TEXT_LENGTH_MAX)) {
    throw new Rejection(400, `a value can have at most ${TEXT_LENGTH_MAX} characters`)
  }
  if (lists.some((each) => each.length > LIST_LENGTH_MAX)) {
    throw new Rejection(400, `at most ${LIST_LENGTH_MAX} fallback endpoints are allowed`)
  }
  if (config.maxRetries < -1 || config.maxRetries > RETRIES_MAX) {
    throw new Rejection(400, `max_retries must be from -1 to ${RETRIES_MAX}`)
  }
}

function checkEndpoint(field: string, endpoint: string): void {
  if (endpoint === '') return
  const url = URL.parse(/^[a-z][a-z0-9+.-]*:\/\//i.test(endpoint) ? endpoint : `https://${endpoint}`)
  if (url && /^https?:$/.test(url.protocol) && url.hostname !== '' && url.username === '' && url.password === '') return
  throw new Rejection(400, `'${field}' is not a URL: expected https://host[:port]`)
}

function configResponse(config: RootConfig): Record<string, unknown> {
  return {
    access_key: config.accessKey,
    region: config.region,
    iam_endpoint: config.iamEndpoint,
    sts_endpoint: config.stsEndpoint,
    sts_region: config.stsRegion,
    sts_fallback_endpoints: config.stsFallbackEndpoints,
    sts_fallback_regions: config.stsFallbackRegions,
    max_retries: config.maxRetries,
    username_template: config.usernameTemplate,
    role_arn: config.roleArn,
    identity_token_audience: config.identityTokenAudience,
    identity_token_ttl: config.identityTokenTtlSeconds,
    rotation_schedule: config.rotationSchedule,
    rotation_window: config.rotationWindowSeconds,
    rotation_period: config.rotationPeriodSeconds,
    disable_automated_rotation: config.isRotationDisabled,
    rotation_policy: config.rotationPolicy,
  }
}

const leaseSchema = v.object({ format: v.literal(1), leaseSeconds: v.number(), maxSeconds: v.number() })

const leases = new StoredRecord(leaseSchema, 'the lease configuration')

/** 0: the setting of the mount. */
export function leaseTermsOf(readEntry: ReadEntry): { readonly leaseSeconds: number; readonly maxSeconds: number } {
  return leases.of(readEntry(ENTRY_PATHS.lease)) ?? { leaseSeconds: 0, maxSeconds: 0 }
}

export const leasePaths: readonly Path[] = [
  path({
    pattern: 'config/lease',
    summary: 'Read or write the TTLs of users',
    fields: {
      lease: anything('TTL of the lease of a user'),
      lease_max: anything('Maximum TTL including renewals'),
    },
    read(_input, { storage }) {
      const stored = leases.of(storage.get(ENTRY_PATHS.lease))
      if (!stored) return undefined
      const [lease, max] = [formatDuration(stored.leaseSeconds * 1000), formatDuration(stored.maxSeconds * 1000)]
      return { data: { lease, lease_max: max } }
    },
    update({ lease, lease_max: max }) {
      if (isMissing(lease)) throw new Rejection(400, "'lease' is a required parameter")
      if (isMissing(max)) throw new Rejection(400, "'lease_max' is a required parameter")
      const value = { format: 1 as const, leaseSeconds: termOf('lease', lease), maxSeconds: termOf('lease_max', max) }
      return { batch: { puts: [leases.put(ENTRY_PATHS.lease, value)], deletes: [] } }
    },
  }),
]

function isMissing(value: unknown): boolean {
  return value === undefined || value === null || value === ''
}

function termOf(field: string, value: unknown): number {
  try {
    return secondsOf(value)
  } catch (error) {
    if (!(error instanceof FieldError)) throw error
    throw new Rejection(400, `Invalid ${field}: ${error.message}`)
  }
}
