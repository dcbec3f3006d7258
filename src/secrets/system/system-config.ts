/** `sys/config`: settings that are stored in the core, and the sanitized configuration of the process. */
import { path, type Path, Rejection } from '../../engines/framework/engine.ts'
import { boolean, commaList, inPath, textList } from '../../engines/framework/fields.ts'
import type { WithOptions, OpenStores } from './core-parts.ts'
import type { SystemSettings } from './system-settings.ts'
import { CORS_HEADERS } from './system-settings.ts'

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$/
/** Keys that would modify an object's prototype. */
const RESERVED_NAMES = new Set(['__proto__', 'constructor', 'prototype'])
/** Each is checked for each request that is audited or answered. */
const HEADERS_MAX = 256
/** Limit of origins and of header names. Each origin is compared with each request of a browser. */
const CORS_LIST_MAX = 1000

type SettingsCore = OpenStores<{ readonly settings: SystemSettings }>

export function configPaths(core: SettingsCore & WithOptions<'serverInfo'>): Path[] {
  return [
    path({
      pattern: 'config/state/sanitized',
      summary: 'Read the configuration of this process without secrets',
      fields: {},
      read: () => ({ data: core.options.serverInfo?.settings?.() ?? {} }),
    }),
    corsPath(core),
    ...auditedHeaderPaths(core),
    ...uiHeaderPaths(core),
  ]
}

function corsPath(core: SettingsCore): Path {
  const setting = () => core.open.settings.cors
  return path({
    pattern: 'config/cors',
    summary: 'Read or write the CORS settings: the origins whose pages may call the core',
    sudo: true,
    fields: {
      enable: boolean('Ignored: a write enables CORS'),
      allowed_origins: commaList('Origins such as https://ui.example.com, or `*` alone for any'),
      allowed_headers: commaList('Headers that such pages may send in addition to the default ones'),
      allow_credentials: boolean('Whether such pages may send credentials such as cookies', { fallback: false }),
    },
    read() {
      const { allowCredentials, allowedHeaders, allowedOrigins, enabled } = setting().value
      if (!enabled) return { data: { enabled }, flattened: true }
      const headers = [...CORS_HEADERS, ...allowedHeaders]
      const rest = { allowed_headers: headers, allow_credentials: allowCredentials }
      return { data: { enabled, allowed_origins: allowedOrigins, ...rest }, flattened: true }
    },
    async update({
      allow_credentials: allowCredentials,
      allowed_headers: headers = [],
      allowed_origins: origins = [],
    }) {
      checkOrigins(origins)
      if (allowCredentials && origins.includes('*')) {
        throw new Rejection(
          400,
          'allow_credentials requires explicit origins: with "*" any page could send requests with the credentials of its visitor',
        )
      }
      if (headers.length > CORS_LIST_MAX) throw new Rejection(400, `allowed_headers: at most ${CORS_LIST_MAX}`)
      for (const each of headers) checkHeaderName(each)
      const known = new Set(CORS_HEADERS.map((each) => each.toLowerCase()))
      const allowedHeaders = [...new Set(headers)].filter((each) => !known.has(each.toLowerCase()))
      await setting().change(() => ({
        enabled: true,
        allowCredentials,
        allowedOrigins: [...new Set(origins)],
        allowedHeaders,
      }))
      return undefined
    },
    async delete() {
      await setting().clear()
      return undefined
    },
  })
}

function checkOrigins(origins: readonly string[]): void {
  if (origins.length === 0) throw new Rejection(400, 'at least one origin or the wildcard must be provided')
  if (origins.length > CORS_LIST_MAX) throw new Rejection(400, `allowed_origins: at most ${CORS_LIST_MAX}`)
  if (origins.includes('*') && origins.length > 1) {
    throw new Rejection(400, "to allow all origins the '*' must be the only value for allowed_origins")
  }
  for (const each of origins) {
    if (each !== '*' && !isOrigin(each)) {
      throw new Rejection(
        400,
        'allowed_origins: each must be a scheme, a host and an optional port, such as https://a.example:8200',
      )
    }
  }
}

function isOrigin(text: string): boolean {
  return URL.canParse(text) && /^[a-z][a-z0-9+.-]*:\/\/[^/?#@\s]+$/i.test(text)
}

function auditedHeaderPaths(core: SettingsCore): Path[] {
  const setting = () => core.open.settings.auditedHeaders
  return [
    path({
      pattern: 'config/auditing/request-headers',
      summary: 'List the request headers that audit devices record',
      sudo: true,
      fields: {},
      read: () => ({ data: { headers: setting().value }, flattened: true }),
    }),
    path({
      pattern: 'config/auditing/request-headers/:header',
      summary: 'Read or write whether audit devices record a request header',
      sudo: true,
      fields: {
        header: inPath('Name of the header', { fold: 'case' }),
        hmac: boolean('Whether only the HMAC of its value is recorded', { fallback: false }),
      },
      read({ header }, { givenPath }) {
        const audited = ownValue(setting().value, header)
        if (!audited) throw new Rejection(400, 'Could not find header in config')
        // Stock clients expect the name as they sent it.
        return { data: { [lastSegment(givenPath)]: audited }, flattened: true }
      },
      async update({ header, hmac }) {
        checkHeaderName(header)
        await setting().change((before) => withHeader(before, header, { hmac }))
        return undefined
      },
      async delete({ header }) {
        await setting().change((before) => withoutHeader(before, header))
        return undefined
      },
    }),
  ]
}

function uiHeaderPaths(core: SettingsCore): Path[] {
  const setting = () => core.open.settings.uiHeaders
  return [
    path({
      pattern: 'config/ui/headers',
      summary: 'List the response headers of the web UI',
      sudo: true,
      fields: {},
      list: () => ({ data: { keys: Object.keys(setting().value).sort() } }),
    }),
    path({
      pattern: 'config/ui/headers/:header',
      summary: 'Read, write or delete a response header of the web UI',
      sudo: true,
      fields: {
        header: inPath('Name of the header', { fold: 'case' }),
        values: textList('Values of the header'),
        multivalue: boolean('Whether a read returns all values', { fallback: false }),
      },
      read({ header, multivalue }) {
        const values = ownValue(setting().value, header)
        return values && { data: multivalue ? { values } : { value: values[0] } }
      },
      async update({ header, values = [] }) {
        checkHeaderName(header)
        if (/^x-vault-/i.test(header)) throw new Rejection(400, 'X-Vault headers cannot be set')
        if (values.length === 0) throw new Rejection(400, 'headers must have at least one value')
        // oxlint-disable-next-line no-control-regex -- matches control characters
        if (values.some((each) => each.length > 8192 || /[\u0000-\u001f\u007f]/.test(each))) {
          throw new Rejection(400, 'the value of a header must be one line of at most 8192 characters')
        }
        await setting().change((before) => withHeader(before, header, [...values]))
        return { warnings: ['The header is stored but not used, because this server has no web UI.'] }
      },
      async delete({ header }) {
        await setting().change((before) => withoutHeader(before, header))
        return undefined
      },
    }),
  ]
}

function lastSegment(at: string): string {
  return at.replace(/\/$/, '').split('/').at(-1) ?? ''
}

function checkHeaderName(name: string): void {
  if (!HEADER_NAME.test(name) || RESERVED_NAMES.has(name.toLowerCase())) throw new Rejection(400, 'invalid header name')
}

/** Ignores inherited properties such as `constructor`. */
function ownValue<T>(settings: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(settings, name) ? settings[name] : undefined
}

function withHeader<T>(before: Readonly<Record<string, T>>, name: string, value: T): Record<string, T> {
  const after = { ...before, [name]: value }
  if (Object.keys(after).length > HEADERS_MAX) throw new Rejection(400, `at most ${HEADERS_MAX} headers can be set`)
  return after
}

function withoutHeader<T>(before: Readonly<Record<string, T>>, name: string): Record<string, T> {
  return Object.fromEntries(Object.entries(before).filter(([each]) => each !== name))
}
