/** The settings below `sys/config` that are kept with the core, and their values. */
import * as v from 'valibot'
import type { Storage } from '../../storage/barrier/storage.ts'
import { StoredSetting } from '../settings/stored-setting.ts'

/** What clients in browsers send and read. */
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
  /** `*` alone is any. */
  allowedOrigins: v.array(v.string()),
  /** Besides those that clients need. */
  allowedHeaders: v.array(v.string()),
  allowCredentials: v.boolean(),
})

/** Which pages of other origins may ask the core. */
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
  /** Headers of requests that the audit log shows, by their name in lower case. */
  readonly auditedHeaders: StoredSetting<v.InferOutput<typeof auditedSchema>>
  /** Headers of the answers of the web page, by name. */
  readonly uiHeaders: StoredSetting<v.InferOutput<typeof uiHeadersSchema>>

  constructor(storage: Storage) {
    this.cors = new StoredSetting(storage, 'core/config/cors', corsSchema, NO_CORS)
    this.auditedHeaders = new StoredSetting(storage, 'core/config/audited-headers', auditedSchema, {})
    this.uiHeaders = new StoredSetting(storage, 'core/config/ui-headers', uiHeadersSchema, {})
  }
}
