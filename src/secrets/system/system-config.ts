/** `sys/config`: settings that are kept with the core, and the process's own, to be looked at. */
import { path, type Path, Rejection } from '../../engines/framework/engine.ts'
import { boolean, commaList, inPath, textList } from '../../engines/framework/fields.ts'
import type { WithOptions, OpenStores } from './core-parts.ts'
import type { SystemSettings } from './system-settings.ts'
import { CORS_HEADERS } from './system-settings.ts'

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$/
/** No client sends them, and what reads the settings leaves them out. */
const UNKEPT = new Set(['__proto__', 'constructor', 'prototype'])
/** Each is looked at with each request that is logged or answered. */
const HEADERS_MAX = 256
/** Origins and header names of a list; each origin is compared with each request of a browser. */
const CORS_LIST_MAX = 1000

type Settings = OpenStores<{ readonly settings: SystemSettings }>

export function configPaths(core: Settings & WithOptions<'serverInfo'>): Path[] {
  return [
    path({
      pattern: 'config/state/sanitized',
      summary: 'The configuration of this process, without anything secret',
      fields: {},
      read: () => ({ data: core.options.serverInfo?.settings?.() ?? {} }),
    }),
    corsPath(core),
    ...auditedHeaderPaths(core),
    ...uiHeaderPaths(core),
  ]
}

function corsPath(core: Settings): Path {
  const setting = () => core.open.settings.cors
  return path({
    pattern: 'config/cors',
    summary: 'Which pages of other origins may ask the core',
    sudo: true,
    fields: {
      enable: boolean('Not looked at: writing it switches it on'),
      allowed_origins: commaList('Origins such as https://ui.example.com, or `*` alone for any'),
      allowed_headers: commaList('Headers that such pages may send besides those that clients need'),
      allow_credentials: boolean('Whether such pages may send cookies and the like', { fallback: false }),
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
          'allow_credentials needs origins that are named: not every page may act for its visitor',
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
        'allowed_origins: each is a scheme, a host and where needed a port, such as https://a.example:8200',
      )
    }
  }
}

function isOrigin(text: string): boolean {
  return URL.canParse(text) && /^[a-z][a-z0-9+.-]*:\/\/[^/?#@\s]+$/i.test(text)
}

function auditedHeaderPaths(core: Settings): Path[] {
  const setting = () => core.open.settings.auditedHeaders
  return [
    path({
      pattern: 'config/auditing/request-headers',
      summary: 'Headers of requests that the audit log shows',
      sudo: true,
      fields: {},
      read: () => ({ data: { headers: setting().value }, flattened: true }),
    }),
    path({
      pattern: 'config/auditing/request-headers/:header',
      summary: 'Whether the audit log shows a header of requests',
      sudo: true,
      fields: {
        header: inPath('Name of the header', { fold: 'case' }),
        hmac: boolean('Whether only a hash of its value is shown', { fallback: false }),
      },
      read({ header }, { givenPath }) {
        const kept = ownValue(setting().value, header)
        if (!kept) throw new Rejection(400, 'Could not find header in config')
        // Stock clients look for the name as they wrote it.
        return { data: { [lastSegment(givenPath)]: kept }, flattened: true }
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

function uiHeaderPaths(core: Settings): Path[] {
  const setting = () => core.open.settings.uiHeaders
  return [
    path({
      pattern: 'config/ui/headers',
      summary: 'Headers of the answers of the web page',
      sudo: true,
      fields: {},
      list: () => ({ data: { keys: Object.keys(setting().value).sort() } }),
    }),
    path({
      pattern: 'config/ui/headers/:header',
      summary: 'A header of the answers of the web page',
      sudo: true,
      fields: {
        header: inPath('Name of the header', { fold: 'case' }),
        values: textList('Its values'),
        multivalue: boolean('Whether a reading tells all values', { fallback: false }),
      },
      read({ header, multivalue }) {
        const values = ownValue(setting().value, header)
        return values && { data: multivalue ? { values } : { value: values[0] } }
      },
      async update({ header, values = [] }) {
        checkHeaderName(header)
        if (/^x-vault-/i.test(header)) throw new Rejection(400, 'X-Vault headers cannot be set')
        if (values.length === 0) throw new Rejection(400, 'headers must have at least one value')
        // oxlint-disable-next-line no-control-regex -- control characters are what it looks for
        if (values.some((each) => each.length > 8192 || /[\u0000-\u001f\u007f]/.test(each))) {
          throw new Rejection(400, 'the value of a header is one line of at most 8192 characters')
        }
        await setting().change((before) => withHeader(before, header, [...values]))
        return { warnings: ['The header is kept. There is no web page so far that would send it.'] }
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
  if (!HEADER_NAME.test(name) || UNKEPT.has(name.toLowerCase()))
    throw new Rejection(400, 'this is not the name of a header')
}

/** Every object has a `constructor`, and no setting of that name. */
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
