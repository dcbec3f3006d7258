/** The settings of `secrets { }`, with which an agent logs in to the secrets core: which belong together. */
import type { Config, SecretsLoginConfig } from './config.ts'
import type { FaultList, Setting } from './fields.ts'
import type { RawConfig } from './schema.ts'

type Raw = NonNullable<RawConfig['secrets']>

const DEFAULT_MOUNT = 'approle'
const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/i

/** `isUnread`: true for a setting that was given and could not be read, so that it is not said to be missing. */
export function settleSecrets(
  raw: Raw | undefined,
  faults: FaultList,
  isUnread: (...paths: readonly string[]) => boolean,
): SecretsLoginConfig | undefined {
  if (!raw) return undefined
  const where = Object.values(raw).find((setting) => setting !== undefined)?.where
  if (!raw.role_id && !raw.role_id_file && !isUnread('secrets.role_id', 'secrets.role_id_file')) {
    faults.add(where, 'secrets needs role_id or role_id_file')
  }
  if (raw.role_id && raw.role_id_file)
    faults.add(raw.role_id_file.where, 'secrets: give one of role_id and role_id_file')
  if (!raw.secret_id_file && !isUnread('secrets.secret_id_file')) faults.add(where, 'secrets needs secret_id_file')
  const { address, ca_file: caFile, cert_file: certFile, key_file: keyFile } = raw
  const one = certFile ?? keyFile
  if (one && !(certFile && keyFile) && !isUnread('secrets.cert_file', 'secrets.key_file')) {
    faults.add(one.where, 'secrets.cert_file and secrets.key_file go together')
  }
  const ofTls = caFile ?? one
  if (ofTls && !isUnread('secrets.address') && !address?.value.startsWith('https:')) {
    faults.add(ofTls.where, 'secrets: ca_file, cert_file and key_file are for an address with https://')
  }
  const roleId = raw.role_id_file ? { file: raw.role_id_file.value } : (raw.role_id?.value ?? '')
  return {
    role: {
      mount: `auth/${raw.mount?.value ?? DEFAULT_MOUNT}`,
      roleId,
      secretIdFile: raw.secret_id_file?.value ?? '',
      ...given('wrappingPath', raw.secret_id_response_wrapping_path),
    },
    ...(address && {
      address: {
        url: address.value,
        ...given('caFile', caFile),
        ...given('certFile', certFile),
        ...given('keyFile', keyFile),
      },
    }),
  }
}

function given(key: string, setting: Setting<string> | undefined): Readonly<Record<string, string>> {
  return setting === undefined ? {} : { [key]: setting.value }
}

/** What concerns the roles of the process, and the network. Returns a warning. */
export function checkSecrets(raw: Raw | undefined, config: Config, faults: FaultList): string | undefined {
  const { client, nats, secrets, server } = config
  if (!raw || !secrets) return undefined
  const where = Object.values(raw).find((setting) => setting !== undefined)?.where
  if (!client.enabled) faults.add(where, 'secrets is for an agent: it needs client { enabled = true }')
  if (!secrets.address && !nats && !server.enabled) {
    faults.add(where, 'secrets needs an address, or a nats block: through which server does the agent log in?')
  }
  const url = secrets.address && URL.parse(secrets.address.url)
  if (url?.protocol !== 'http:' || LOOPBACK.test(url.hostname)) return undefined
  return `secrets.address ${url.origin} without TLS: whoever is on the network path can read the secret ID and the token (use https://)`
}
