/** The stored root configuration of a mount. */
import * as v from 'valibot'
import { StoredRecord, type ReadEntry } from '../../framework/records.ts'
import { ENTRY_PATHS } from './entries.ts'

const rootSchema = v.object({
  format: v.literal(1),
  accessKey: v.string(),
  secretKey: v.string(),
  /** When a rotation created the access key, which may be unknown to AWS for some seconds; 0 for a key from a caller. */
  keyMadeAtMs: v.number(),
  region: v.string(),
  iamEndpoint: v.string(),
  stsEndpoint: v.string(),
  stsRegion: v.string(),
  stsFallbackEndpoints: v.array(v.string()),
  stsFallbackRegions: v.array(v.string()),
  /** -1: the default. */
  maxRetries: v.number(),
  usernameTemplate: v.string(),
  roleArn: v.string(),
  identityTokenAudience: v.string(),
  identityTokenTtlSeconds: v.number(),
  rotationSchedule: v.string(),
  rotationWindowSeconds: v.number(),
  rotationPeriodSeconds: v.number(),
  isRotationDisabled: v.boolean(),
  rotationPolicy: v.string(),
  /** Start of the rotation period: the last rotation, or the write that set it. */
  rotationFromMs: v.number(),
})

export type RootConfig = v.InferOutput<typeof rootSchema>

export const DEFAULT_TEMPLATE =
  '{{ if (eq .Type "STS") }}{{ printf "vault-%s-%s"  (unix_time) (random 20) | truncate 32 }}{{ else }}{{ printf "vault-%s-%s-%s" (printf "%s-%s" (.DisplayName) (.PolicyName) | truncate 42) (unix_time) (random 20) | truncate 64 }}{{ end }}'

/** Of a mount without configuration, which uses the credentials of the process. */
export const NO_ROOT: RootConfig = {
  format: 1,
  accessKey: '',
  secretKey: '',
  keyMadeAtMs: 0,
  region: '',
  iamEndpoint: '',
  stsEndpoint: '',
  stsRegion: '',
  stsFallbackEndpoints: [],
  stsFallbackRegions: [],
  maxRetries: -1,
  usernameTemplate: DEFAULT_TEMPLATE,
  roleArn: '',
  identityTokenAudience: '',
  identityTokenTtlSeconds: 3600,
  rotationSchedule: '',
  rotationWindowSeconds: 0,
  rotationPeriodSeconds: 0,
  isRotationDisabled: false,
  rotationPolicy: '',
  rotationFromMs: 0,
}

export const roots = new StoredRecord(rootSchema, 'the root configuration')

/** Undefined if none was written. */
export function rootOf(readEntry: ReadEntry): RootConfig | undefined {
  return roots.of(readEntry(ENTRY_PATHS.root))
}
