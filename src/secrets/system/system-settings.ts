/** The settings below `sys/config` that are stored in the core. */
import * as v from 'valibot'
import type { Storage } from '../../storage/barrier/storage.ts'
import { StoredSetting } from '../settings/stored-setting.ts'

/** Headers that clients in browsers send and read. */
export const CORS_HEADERS: readonly string[] = [
  'Content-Type',
  'X-Requested-With',
  'X-Vault-AWS-IAM-Server-ID',
  'X-Vault-MFA',
  'X-Vault-No-Request-Forwarding',
  'X-Vault-Wrap-Format',
  'X-Vault-Wrap-TTL',
  'X-Vault-Policy-Override',
  'Authorization',
  'X-Vault-Token',
]

const corsSchema = v.object({
  enabled: v.boolean(),
  /** A single `*` matches any origin. */
  allowedOrigins: v.array(v.string()),
  /** In addition to `CORS_HEADERS`. */
  allowedHeaders: v.array(v.string()),
  allowCredentials: v.boolean(),
})

export type CorsSetting = v.InferOutput<typeof corsSchema>

export const NO_CORS: CorsSetting = Object.freeze({
  enabled: false,
  allowedOrigins: [],
  allowedHeaders: [],
  allowCredentials: false,
})

const auditedSchema = v.record(v.string(), v.object({ hmac: v.boolean() }))
const uiHeadersSchema = v.record(v.string(), v.array(v.string()))

export class SystemSettings {
  readonly cors: StoredSetting<CorsSetting>
  /** Request headers that audit devices record, by name in lower case. */
  readonly auditedHeaders: StoredSetting<v.InferOutput<typeof auditedSchema>>
  /** Response headers of the web UI, by name. */
  readonly uiHeaders: StoredSetting<v.InferOutput<typeof uiHeadersSchema>>

  constructor(storage: Storage) {
    this.cors = new StoredSetting(storage, 'core/config/cors', corsSchema, NO_CORS)
    this.auditedHeaders = new StoredSetting(storage, 'core/config/audited-headers', auditedSchema, {})
    this.uiHeaders = new StoredSetting(storage, 'core/config/ui-headers', uiHeadersSchema, {})
  }
}
