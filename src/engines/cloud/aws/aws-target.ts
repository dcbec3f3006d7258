/** Endpoints and credentials for IAM and STS, from config/root and the environment of the process. */
import type { RootConfig } from './root-record.ts'

const FALLBACK_REGION = 'us-east-1'

export type Environment = Readonly<Record<string, string | undefined>>

export interface AwsTarget {
  /** Absent: the endpoint of AWS for the region. */
  readonly endpoint?: string
  readonly region: string
}

export interface StaticCredentials {
  readonly accessKeyId: string
  readonly secretAccessKey: string
  readonly sessionToken?: string
}

/** The region of config/root, else AWS_REGION, else AWS_DEFAULT_REGION, else us-east-1. */
function regionOf({ region }: Pick<RootConfig, 'region'>, env: Environment = process.env): string {
  return [region, env['AWS_REGION'], env['AWS_DEFAULT_REGION']].find((each) => each) ?? FALLBACK_REGION
}

/** Adds the scheme to an endpoint without one. */
function endpointOf(given: string): { endpoint?: string } {
  if (given === '') return {}
  return { endpoint: /^https?:\/\//i.test(given) ? given : `https://${given}` }
}

export function iamTarget(config: RootConfig, env: Environment = process.env): AwsTarget {
  return { ...endpointOf(config.iamEndpoint), region: regionOf(config, env) }
}

/** STS endpoints in the order of attempts; never empty. */
export function stsTargets(config: RootConfig, env: Environment = process.env): readonly AwsTarget[] {
  const region = config.stsRegion === '' ? regionOf(config, env) : config.stsRegion
  const fallbacks = config.stsFallbackEndpoints.map((endpoint, at) => ({
    ...endpointOf(endpoint),
    region: config.stsFallbackRegions[at] ?? region,
  }))
  return [{ ...endpointOf(config.stsEndpoint), region }, ...fallbacks]
}

/** Names a target in error messages. */
export function targetName(service: string, { endpoint, region }: AwsTarget): string {
  return endpoint ?? `${service} in ${region}`
}

/**
 * The key pair of config/root, else that of the environment, with either set of variable names. Undefined: the SDK uses shared
 * files, the role of the task, or the role of the instance, in this order.
 */
export function staticCredentials(config: RootConfig, env: Environment = process.env): StaticCredentials | undefined {
  if (config.accessKey !== '') return { accessKeyId: config.accessKey, secretAccessKey: config.secretKey }
  const accessKeyId = env['AWS_ACCESS_KEY_ID'] ?? env['AWS_ACCESS_KEY'] ?? ''
  const secretAccessKey = env['AWS_SECRET_ACCESS_KEY'] ?? env['AWS_SECRET_KEY'] ?? ''
  if (accessKeyId === '' || secretAccessKey === '') return undefined
  const sessionToken = env['AWS_SESSION_TOKEN']
  return { accessKeyId, secretAccessKey, ...(sessionToken && { sessionToken }) }
}

/** Maximum number of attempts for a request. */
export function attemptsOf({ maxRetries }: Pick<RootConfig, 'maxRetries'>, env: Environment = process.env): number {
  if (maxRetries >= 0) return maxRetries + 1
  const given = Number(env['AWS_MAX_ATTEMPTS'])
  return Number.isSafeInteger(given) && given > 0 ? Math.min(given, 20) : 3
}
