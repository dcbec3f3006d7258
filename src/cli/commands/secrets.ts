/** `outpost secrets list|enable|disable|tune|move`, and the same commands for auth methods, which `auth.ts` exports. */
import { setTimeout as delay } from 'node:timers/promises'
import { confirm, confirmOptions } from '../core/confirmation.ts'
import { cleanPath, type CoreAccess, coreOf, coreOptions, requireResponse, sendRequest } from '../core/core-access.ts'
import { cell, formatOf, formatOption, printAs, printWarnings, ttlText, wideTable } from '../core/secret-output.ts'
import { type Command, CommandError, defineCommand } from '../framework/define-command.ts'
import { choice, flag, optionalFlag, text, texts, UsageError } from '../framework/options.ts'
import { readPairs } from '../input/data-input.ts'
import { fieldsOf, isJsonObject, type JsonFields } from '../output/json.ts'

export interface MountKind {
  /** First word of the commands. */
  readonly word: 'secrets' | 'auth'
  readonly singular: string
  readonly article: 'a' | 'an'
  readonly plural: string
  /** API path of the mounts. */
  readonly path: string
  /** Precedes the mount path for endpoints of both kinds. */
  readonly prefix: string
  readonly exampleType: string
  /** What `disable` does to the data. */
  readonly disableEffect: string
}

const SECRET_ENGINES: MountKind = {
  word: 'secrets',
  singular: 'secrets engine',
  article: 'a',
  plural: 'secrets engines',
  path: 'sys/mounts',
  prefix: '',
  exampleType: 'kv',
  disableEffect: 'delete all data of the engine',
}
export const AUTH_METHODS: MountKind = {
  word: 'auth',
  singular: 'auth method',
  article: 'an',
  plural: 'auth methods',
  path: 'sys/auth',
  prefix: 'auth/',
  exampleType: 'userpass',
  disableEffect: 'revoke all tokens of the auth method',
}

const POLL_MS = 500

const optional = (placeholder: string, help: string) => text({ placeholder, help, fallback: undefined })

/** Settings of a mount for `enable` and `tune`. */
const settingOptions = {
  description: optional('TEXT', 'Description'),
  'default-lease-ttl': optional('DURATION', 'Default TTL of leases and tokens'),
  'max-lease-ttl': optional('DURATION', 'Maximum TTL of leases and tokens'),
  options: texts('KEY=VALUE', 'Option of the mount'),
  'listing-visibility': choice({
    placeholder: 'WHO',
    help: 'Whether callers without a token see the mount',
    choices: ['hidden', 'unauth'],
  }),
  'audit-non-hmac-request-keys': texts('NAME', 'Request field that audit devices record without HMAC'),
  'audit-non-hmac-response-keys': texts('NAME', 'Response field that audit devices record without HMAC'),
  'passthrough-request-headers': texts('NAME', 'Request header to pass to the engine'),
  'allowed-response-headers': texts('NAME', 'Response header that the engine may set'),
  'token-type': optional('TYPE', 'For auth methods: type of the tokens that it issues'),
  'force-no-cache': optionalFlag('No effect'),
}

interface MountSettings {
  readonly description: string | undefined
  readonly 'default-lease-ttl': string | undefined
  readonly 'max-lease-ttl': string | undefined
  readonly options: readonly string[]
  readonly version: string | undefined
  readonly 'listing-visibility': string | undefined
  readonly 'audit-non-hmac-request-keys': readonly string[]
  readonly 'audit-non-hmac-response-keys': readonly string[]
  readonly 'passthrough-request-headers': readonly string[]
  readonly 'allowed-response-headers': readonly string[]
  readonly 'token-type': string | undefined
}

/** Settings without a default that were given. */
function givenSettings(values: MountSettings): Record<string, unknown> {
  const settings: Record<string, unknown> = {
    listing_visibility: values['listing-visibility'],
    audit_non_hmac_request_keys: listOf(values['audit-non-hmac-request-keys']),
    audit_non_hmac_response_keys: listOf(values['audit-non-hmac-response-keys']),
    passthrough_request_headers: listOf(values['passthrough-request-headers']),
    allowed_response_headers: listOf(values['allowed-response-headers']),
    token_type: values['token-type'],
  }
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined))
}

function listOf(values: readonly string[]): string[] | undefined {
  return values.length === 0 ? undefined : values.flatMap((list) => list.split(',')).filter(Boolean)
}

/** Undefined without options. */
function mountOptions({ options, version }: MountSettings): Record<string, string> | undefined {
  const all = { ...readPairs(options, '-options'), ...(version === undefined ? {} : { version }) }
  return Object.keys(all).length === 0 ? undefined : all
}

/** A mount path with its slash. A leading `auth/` of an auth method is removed. */
function mountPathOf(given: string, { prefix }: MountKind): string {
  const path = cleanPath(given)
  return `${prefix !== '' && path.startsWith(prefix) ? path.slice(prefix.length) : path}/`
}

export function mountCommands(kind: MountKind): Command[] {
  return [listCommand(kind), enableCommand(kind), disableCommand(kind), tuneCommand(kind), moveCommand(kind)]
}

function listCommand({ path, plural, word }: MountKind): Command {
  return defineCommand({
    name: `${word} list`,
    summary: `List enabled ${plural}`,
    options: { detailed: flag('Show all settings'), ...formatOption, ...coreOptions },
    async run(values, _operands, io) {
      const { body, fields } = await requireResponse(coreOf(values, io), { path })
      const data = fields.value('data') ?? body
      const mounts = isJsonObject(data) ? data : {}
      printAs(formatOf(values, io), mounts, io, () => (values.detailed ? detailTable(mounts) : overviewTable(mounts)))
      return 0
    },
  })
}

function enableCommand(kind: MountKind): Command {
  const { article, exampleType, path, singular, word } = kind
  return defineCommand({
    name: `${word} enable`,
    summary: `Enable ${article} ${singular}`,
    details: `Mounts at the path TYPE/ unless -path is set.\n\nExample: outpost ${word} enable -path=team ${exampleType}`,
    options: {
      path: optional('PATH', 'Mount path instead of the type'),
      version: optional('N', 'For KV engines: version; 2 enables versioning'),
      local: flag('Exclude the mount from replication'),
      'seal-wrap': flag('No effect'),
      ...settingOptions,
      ...coreOptions,
    },
    operands: { shown: 'TYPE', min: 1, max: 1 },
    async run(values, [type = ''], io) {
      const at = mountPathOf(values.path ?? type, kind)
      const body = {
        type: type.trim(),
        description: values.description ?? '',
        config: {
          options: null,
          default_lease_ttl: values['default-lease-ttl'] ?? '0s',
          max_lease_ttl: values['max-lease-ttl'] ?? '0s',
          force_no_cache: values['force-no-cache'] ?? false,
          ...givenSettings(values),
        },
        local: values.local,
        seal_wrap: values['seal-wrap'],
        external_entropy_access: false,
        options: mountOptions(values) ?? null,
      }
      const answer = await sendRequest(coreOf(values, io), { method: 'POST', path: `${path}/${at}`, body })
      io.out(`Success! Enabled the ${type.trim()} ${singular} at: ${at}\n`)
      if (answer) printWarnings(answer, io)
      return 0
    },
  })
}

function disableCommand(kind: MountKind): Command {
  const { article, disableEffect, path: listPath, singular, word } = kind
  return defineCommand({
    name: `${word} disable`,
    summary: `Disable ${article} ${singular}`,
    details: `Disabling ${article} ${singular} will ${disableEffect}. This cannot be undone. Asks for confirmation on a terminal.`,
    options: { ...confirmOptions, ...coreOptions },
    operands: { shown: 'PATH', min: 1, max: 1, hint: `"outpost ${word} list" lists the paths` },
    async run(values, [path = ''], io) {
      const at = mountPathOf(path, kind)
      const core = coreOf(values, io)
      await confirm(core, `disable ${at} and ${disableEffect}`, values.yes, io)
      await sendRequest(core, { method: 'DELETE', path: `${listPath}/${at}` })
      io.out(`Success! Disabled the ${singular} (if it existed) at: ${at}\n`)
      return 0
    },
  })
}

function tuneCommand(kind: MountKind): Command {
  const { article, prefix, singular, word } = kind
  return defineCommand({
    name: `${word} tune`,
    summary: `Change the settings of ${article} ${singular}`,
    details: 'Omitted settings do not change.',
    options: {
      version: optional('N', 'For KV engines: version; 2 enables versioning'),
      ...settingOptions,
      ...coreOptions,
    },
    operands: { shown: 'PATH', min: 1, max: 1, hint: `"outpost ${word} list" lists the paths` },
    async run(values, [path = ''], io) {
      const at = mountPathOf(path, kind)
      const options = mountOptions(values)
      const settings: Record<string, unknown> = {
        description: values.description,
        default_lease_ttl: values['default-lease-ttl'],
        max_lease_ttl: values['max-lease-ttl'],
        force_no_cache: values['force-no-cache'],
        ...givenSettings(values),
        ...(options ? { options } : {}),
      }
      if (Object.values(settings).every((value) => value === undefined)) {
        throw new UsageError('missing setting: use an option such as -description=TEXT')
      }
      const request = { method: 'POST', path: `sys/mounts/${prefix}${at}tune`, body: settings } as const
      const answer = await sendRequest(coreOf(values, io), request)
      io.out(`Success! Tuned the ${singular} at: ${at}\n`)
      if (answer) printWarnings(answer, io)
      return 0
    },
  })
}

function moveCommand(kind: MountKind): Command {
  const { article, prefix, singular, word } = kind
  return defineCommand({
    name: `${word} move`,
    summary: `Move ${article} ${singular} to another path`,
    options: { ...coreOptions },
    operands: { shown: 'SOURCE DESTINATION', min: 2, max: 2 },
    async run(values, [from = '', to = ''], io) {
      const core = coreOf(values, io)
      const [source, target] = [mountPathOf(from, kind), mountPathOf(to, kind)]
      const body = { from: prefix + source, to: prefix + target }
      const { fields } = await requireResponse(core, { method: 'POST', path: 'sys/remount', body })
      await untilMoved(core, fields.text('migration_id') || fields.under('data').text('migration_id'))
      io.out(`Success! Moved the ${singular} ${source} to: ${target}\n`)
      return 0
    },
  })
}

async function untilMoved(core: CoreAccess, id: string): Promise<void> {
  for (;;) {
    const { fields } = await requireResponse(core, { path: `sys/remount/status/${id}` })
    const status = fields.under('data').under('migration_info').text('status')
    if (status === 'success') return
    if (status !== 'in-progress') throw new CommandError(`the move failed (${status}), check the log of the server`)
    await delay(POLL_MS)
  }
}

type Mounts = Readonly<Record<string, unknown>>

function rowsOf(mounts: Mounts, row: (mount: JsonFields) => readonly unknown[]): string[][] {
  const paths = Object.keys(mounts).toSorted()
  return paths.map((path) => [path, ...row(fieldsOf(mounts[path]))].map(cell))
}

function overviewTable(mounts: Mounts): string {
  const rows = rowsOf(mounts, (mount) => [
    mount.text('type'),
    mount.text('accessor'),
    mount.text('description') || 'n/a',
  ])
  return wideTable(['Path', 'Type', 'Accessor', 'Description'], rows)
}

function detailTable(mounts: Mounts): string {
  const rows = rowsOf(mounts, (mount) => {
    const config = mount.under('config')
    const ttl = (name: string) => (config.number(name) === 0 ? 'system' : ttlText(config.number(name)))
    return [
      mount.text('type'),
      mount.text('accessor'),
      ttl('default_lease_ttl'),
      ttl('max_lease_ttl'),
      mount.boolean('local') ? 'local' : 'replicated',
      optionsText(mount),
      mount.text('description') || 'n/a',
      mount.text('uuid'),
    ]
  })
  const header = [
    'Path',
    'Plugin',
    'Accessor',
    'Default TTL',
    'Max TTL',
    'Replication',
    'Options',
    'Description',
    'UUID',
  ]
  return wideTable(header, rows)
}

function optionsText(mount: JsonFields): string {
  const options = mount.under('options')
  const names = mount.names('options')
  return `map[${names.map((name) => `${name}:${options.text(name)}`).join(' ')}]`
}

export const commands = mountCommands(SECRET_ENGINES)
