/** `config/root`: with which credentials AWS is called, where, and how users are named. */
import { type EngineCall, path, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { boolean, commaList, duration, type EngineInput, integer, text } from '../../framework/fields.ts'
import { arnFault } from '../aws/arn.ts'
import { at } from '../aws/entries.ts'
import { DEFAULT_TEMPLATE, NO_ROOT, type RootConfig, rootOf, roots } from '../aws/root-record.ts'
import { checkRotation } from './rotation-schedule.ts'
import { checkTemplate } from '../mount/username.ts'

const TEXT_LENGTH_MAX = 4096
const LIST_LENGTH_MAX = 32
const RETRIES_MAX = 20

const FIELDS = {
  access_key: text('ID of the access key that AWS is called with'),
  secret_key: text('Its secret'),
  region: text('Region of AWS; unless given that of the environment, else us-east-1'),
  iam_endpoint: text('URL of IAM, where it is not that of AWS'),
  sts_endpoint: text('URL of STS, where it is not that of AWS'),
  sts_region: text('Region of STS, where it is another one'),
  sts_fallback_endpoints: commaList('URLs of STS that are tried after it, in order'),
  sts_fallback_regions: commaList('Their regions, in the same order'),
  max_retries: integer('How often a failed request is sent again; -1 for two times'),
  username_template: text('Template for the names of users and sessions'),
  role_arn: text('ARN of the role that is assumed with an identity token'),
  identity_token_audience: text('Audience of identity tokens; instead of an access key'),
  identity_token_ttl: duration('How long an identity token is good'),
  rotation_schedule: text('Cron expression of five fields, in UTC: when the access key is rotated'),
  rotation_window: duration('How long after that time the rotation may still begin'),
  rotation_period: duration('Time between two rotations of the access key'),
  disable_automated_rotation: boolean('Whether no rotation happens by itself'),
  rotation_policy: text('Kept for clients that set it'),
}

type RootInput = EngineInput<typeof FIELDS>

export const rootPaths: readonly Path[] = [
  path({
    pattern: 'config/root',
    summary: 'Credentials and settings for AWS',
    fields: FIELDS,
    exists: (_input, { storage }) => rootOf((each) => storage.pending(each)) !== undefined,
    read(_input, { storage }) {
      const config = rootOf((each) => storage.get(each))
      return config && { data: shown(config) }
    },
    update(input, call) {
      const config = wanted(input, call)
      if (config.identityTokenAudience !== '') return federated(input, call)
      return { batch: { puts: [roots.put(at.root, config)], deletes: [] }, status: 204 }
    },
  }),
]

/** What a write makes of the configuration. Throws a Rejection (400) for what does not go together. */
function wanted(input: RootInput, { nowMs, storage }: EngineCall): RootConfig {
  checkPair(input)
  const config = changed(rootOf((each) => storage.pending(each)) ?? NO_ROOT, input, nowMs)
  check(config)
  return config
}

/** Nothing is stored unless a token can be made; whether AWS accepts it is not looked at. */
async function federated(input: RootInput, call: EngineCall): Promise<Reply> {
  const { identityTokenAudience: audience, identityTokenTtlSeconds: ttlSeconds } = wanted(input, call)
  const { issuer } = await call.mount.identityToken({ audience, ttlSeconds })
  // Read again: others may have come in meanwhile.
  await call.storage.commit({ puts: [roots.put(at.root, wanted(input, call))], deletes: [] })
  if (issuer.startsWith('https://')) return { status: 204 }
  const why = `AWS reads the keys of an issuer by HTTPS, and cannot read those of ${issuer}`
  return { warnings: [`${why}: write the public URL of this server to identity/oidc/config`] }
}

/** The values of a record whose fields were given. */
function changed(before: RootConfig, input: RootInput, nowMs: number): RootConfig {
  const template = input.username_template === '' ? DEFAULT_TEMPLATE : input.username_template
  const isKeyNew = input.access_key !== undefined && input.access_key !== before.accessKey
  return {
    format: 1,
    accessKey: input.access_key ?? before.accessKey,
    // A secret belongs to its key: where the key goes, it goes too.
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

/** Throws a Rejection (400) for one half of a key: it must not be combined with the half that is stored. An empty `access_key` removes both. */
function checkPair({ access_key: accessKey = '', secret_key: secretKey = '' }: RootInput): void {
  if (accessKey !== '' && secretKey === '') throw new Rejection(400, "'access_key' needs 'secret_key' beside it")
  if (secretKey !== '' && accessKey === '') throw new Rejection(400, "'secret_key' needs 'access_key' beside it")
}

/** Throws a Rejection (400) for what does not go together. Whether AWS accepts the credentials is not looked at. */
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
  if (fault !== undefined) throw new Rejection(400, `'role_arn' is no ARN of a role: ${fault}`)
  if (secretKey !== '' && accessKey === '') throw new Rejection(400, "'secret_key' needs 'access_key' beside it")
  if (accessKey !== '' && secretKey === '') throw new Rejection(400, "'access_key' needs 'secret_key' beside it")
  checkEndpoint('iam_endpoint', config.iamEndpoint)
  checkEndpoint('sts_endpoint', config.stsEndpoint)
  for (const endpoint of stsFallbackEndpoints) checkEndpoint('sts_fallback_endpoints', endpoint)
}

function checkSizes(config: RootConfig): void {
  const lists = [config.stsFallbackEndpoints, config.stsFallbackRegions]
  const texts = Object.values(config).filter((each) => typeof each === 'string')
  if ([...texts, ...lists.flat()].some((each) => each.length > TEXT_LENGTH_MAX)) {
    throw new Rejection(400, `a value has at most ${TEXT_LENGTH_MAX} characters`)
  }
  if (lists.some((each) => each.length > LIST_LENGTH_MAX)) {
    throw new Rejection(400, `there are at most ${LIST_LENGTH_MAX} fallback endpoints`)
  }
  if (config.maxRetries < -1 || config.maxRetries > RETRIES_MAX) {
    throw new Rejection(400, `max_retries is -1 to ${RETRIES_MAX}`)
  }
}

function checkEndpoint(field: string, endpoint: string): void {
  if (endpoint === '') return
  const url = URL.parse(/^[a-z][a-z0-9+.-]*:\/\//i.test(endpoint) ? endpoint : `https://${endpoint}`)
  if (url && /^https?:$/.test(url.protocol) && url.hostname !== '' && url.username === '' && url.password === '') return
  throw new Rejection(400, `'${field}' is no URL: give it as https://host[:port]`)
}

function shown(config: RootConfig): Record<string, unknown> {
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
