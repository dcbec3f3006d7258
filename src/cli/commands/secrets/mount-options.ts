/** The settings of a mount as options of commands, and as the server takes them. */
import { choice, flag, optionalFlag, text, texts } from '../../framework/options.ts'

const optional = (placeholder: string, help: string) => text({ placeholder, help, fallback: undefined })

/** Settings that can be given when it is enabled and changed later. */
export const settingOptions = {
  description: text({ placeholder: 'TEXT', help: 'What it is for, for people', fallback: undefined }),
  'default-lease-ttl': optional('DURATION', 'How long what it gives out is good for'),
  'max-lease-ttl': optional('DURATION', 'How long that can be at most'),
  options: texts('KEY=VALUE', 'An option of the engine'),
  'listing-visibility': choice({
    placeholder: 'WHO',
    help: 'Whether callers without a token see it',
    choices: ['hidden', 'unauth'],
  }),
  'audit-non-hmac-request-keys': texts('NAME', 'A field of requests that the audit log shows as it is'),
  'audit-non-hmac-response-keys': texts('NAME', 'A field of answers that the audit log shows as it is'),
  'passthrough-request-headers': texts('NAME', 'A header of requests that the engine is shown'),
  'allowed-response-headers': texts('NAME', 'A header that the engine may add to answers'),
  'token-type': optional('TYPE', 'Type of the tokens that an auth method gives out'),
}

/** Those of enabling alone. */
export const enableOptions = {
  path: optional('PATH', 'Where it is to be, when that is not its type'),
  version: optional('N', 'Version of the engine: 2 for a versioned store of secrets'),
  local: flag('Leave it out of replication between clusters'),
  'seal-wrap': flag('Kept for scripts that set it; everything is encrypted alike'),
  'force-no-cache': optionalFlag('Kept for scripts that set it; nothing is cached'),
}

export interface Settings {
  readonly 'listing-visibility': string | undefined
  readonly 'audit-non-hmac-request-keys': readonly string[]
  readonly 'audit-non-hmac-response-keys': readonly string[]
  readonly 'passthrough-request-headers': readonly string[]
  readonly 'allowed-response-headers': readonly string[]
  readonly 'token-type': string | undefined
}

/** Only what was given. */
export function rareSettings(values: Settings): Record<string, unknown> {
  const given: Record<string, unknown> = {
    listing_visibility: values['listing-visibility'],
    audit_non_hmac_request_keys: listed(values['audit-non-hmac-request-keys']),
    audit_non_hmac_response_keys: listed(values['audit-non-hmac-response-keys']),
    passthrough_request_headers: listed(values['passthrough-request-headers']),
    allowed_response_headers: listed(values['allowed-response-headers']),
    token_type: values['token-type'],
  }
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
}

function listed(values: readonly string[]): string[] | undefined {
  return values.length === 0 ? undefined : values.flatMap((list) => list.split(',')).filter(Boolean)
}
