/** `sys/policies/acl` and the older `sys/policy`. */
import type { EngineCall, Path, Reply } from '../../engines/framework/engine.ts'
import { path, Rejection } from '../../engines/framework/engine.ts'
import { aliasField, boolean, duration, inPath, integer, text } from '../../engines/framework/fields.ts'
import type { PolicyChange, PolicyRecord, PolicyStore } from './policy-store.ts'

const NAME = inPath('Name of the policy. Converted to lower case, without surrounding white space', {
  fold: 'case and spaces',
})
const PREFIX = inPath('Prefix of the names', { fold: 'case' })

const SETTING_FIELDS = {
  expiration: text('Expiry, such as "2027-01-31T12:00:00Z"'),
  ttl: duration('Time until the policy expires'),
  cas: integer('Expected current version, 0 or -1 for none. The write fails if the version differs'),
  cas_required: boolean('Whether later writes require `cas`'),
  allow_slashes_in_identity_templates: boolean('Whether template values may contain slashes'),
  allow_wildcards_in_identity_templates: boolean('Whether `*` and `+` in template values are wildcards'),
}

const POLICY = text('Policy document in HCL or JSON, optionally base64-encoded')

type PolicySettings = {
  readonly [K in keyof typeof SETTING_FIELDS]: (typeof SETTING_FIELDS)[K]['fallback']
}

interface PolicyServices {
  /** Throws a Refusal (503) while the core is sealed. */
  readonly open: {
    readonly policies: PolicyStore
    readonly mfa: { method(reference: string): object | undefined }
  }
}

export function policyPaths(core: PolicyServices): Path[] {
  const store = () => core.open.policies
  return [
    path({
      pattern: 'policies/acl',
      summary: 'List the policies',
      fields: {},
      list: (_input, { nowMs }) => ({ data: { keys: allNames(store(), '', nowMs) } }),
    }),
    path({
      pattern: 'policies/acl/:name*',
      summary: 'Read, write or delete a policy',
      fields: { name: NAME, policy: POLICY, ...SETTING_FIELDS },
      list: ({ name }, call) => namesBelow(store(), name, call),
      read: ({ name }, call) => readReply(store(), name, call, 'policy'),
      update: ({ name, policy, ...settings }, call) => writePolicy(core, name, policy, settings, call, []),
      patch: async ({ name, policy, ...settings }, call) => {
        const { nowMs } = call
        const change = changeOf(policy, settings, nowMs)
        await store().write(name, change, { nowMs, patch: true, ...casOf(settings) })
        return { data: null, warnings: [...conversionWarning(name, call), ...unknownMethodWarnings(core, name, nowMs)] }
      },
      delete: ({ name }) => removePolicy(store(), name),
    }),
    path({
      pattern: 'policies/detailed/acl/:prefix*',
      summary: 'List policies with their documents',
      fields: { prefix: PREFIX },
      list: ({ prefix }, call) => detailedReply(store(), prefix, call),
    }),
    ...olderPaths(core),
  ]
}

function olderPaths(core: PolicyServices): Path[] {
  const store = () => core.open.policies
  const names = (nowMs: number): Reply => {
    const keys = allNames(store(), '', nowMs)
    return { data: { keys, policies: keys }, flattened: true }
  }
  return [
    path({
      pattern: 'policy',
      summary: 'List the policies',
      fields: {},
      read: (_input, { nowMs }) => names(nowMs),
      list: (_input, { nowMs }) => names(nowMs),
    }),
    path({
      pattern: 'policy/:name*',
      summary: 'Read, write or delete a policy',
      fields: {
        name: NAME,
        policy: POLICY,
        rules: aliasField(text('Deprecated: use `policy`'), 'policy'),
        ...SETTING_FIELDS,
      },
      read: ({ name }, call) => readReply(store(), name, call, 'rules'),
      update: ({ name, policy, rules, ...settings }, call) => {
        if (policy !== undefined || rules === undefined) return writePolicy(core, name, policy, settings, call, [])
        return writePolicy(core, name, rules, settings, call, ["'rules' is deprecated, please use 'policy' instead"])
      },
      delete: ({ name }) => removePolicy(store(), name),
    }),
  ]
}

/** `root` is the last one. */
function allNames(store: PolicyStore, prefix: string, nowMs: number): string[] {
  return [...store.names(prefix, nowMs), ...('root'.startsWith(prefix) ? ['root'] : [])]
}

function namesBelow(store: PolicyStore, prefix: string, call: EngineCall): Reply {
  return { data: { keys: allNames(store, prefix, call.nowMs) } }
}

async function removePolicy(store: PolicyStore, name: string): Promise<undefined> {
  await store.remove(name)
}

function readReply(
  store: PolicyStore,
  name: string,
  { nowMs }: EngineCall,
  member: 'policy' | 'rules',
): Reply | undefined {
  const record = store.find(name, nowMs)
  if (!record && name !== 'root') return undefined
  return { data: { ...policyFields(record), name, [member]: record?.text ?? '' }, flattened: member === 'rules' }
}

/** The fields of a policy in answers; without a record those of `root`. */
function policyFields(record: PolicyRecord | undefined): Record<string, unknown> {
  return {
    allow_slashes_in_identity_templates: record?.freeSlashes ?? false,
    allow_wildcards_in_identity_templates: record?.freeWildcards ?? false,
    cas_required: record?.casRequired ?? false,
    ...(record?.expiresAtMs !== undefined && { expiration: new Date(record.expiresAtMs).toISOString() }),
    ...(record && { modified: new Date(record.modifiedAtMs).toISOString() }),
    version: record?.version ?? 0,
  }
}

function detailedReply(store: PolicyStore, prefix: string, call: EngineCall): Reply {
  const { nowMs } = call
  const keys = allNames(store, prefix, nowMs)
  const infos = keys.map((name) => {
    const record = store.find(name, nowMs)
    return [name, { ...policyFields(record), name, policy: record?.text ?? '' }] as const
  })
  return { data: { keys, key_info: Object.fromEntries(infos) } }
}

async function writePolicy(
  core: PolicyServices,
  name: string,
  document: string | undefined,
  settings: PolicySettings,
  call: EngineCall,
  warnings: readonly string[],
): Promise<Reply | undefined> {
  const { nowMs } = call
  await core.open.policies.write(name, changeOf(document ?? '', settings, nowMs), { nowMs, ...casOf(settings) })
  const all = [...conversionWarning(name, call), ...warnings, ...unknownMethodWarnings(core, name, nowMs)]
  return all.length > 0 ? { warnings: all } : undefined
}

function conversionWarning(name: string, { givenPath, path: canonical }: EngineCall): string[] {
  return givenPath === canonical ? [] : [`policy name was converted to ${name}`]
}

/** Clients show each warning. */
const METHOD_WARNINGS_MAX = 20

/** Warnings about rules that require an unknown MFA method, and so deny every request. */
function unknownMethodWarnings({ open: { mfa, policies } }: PolicyServices, name: string, nowMs: number): string[] {
  const unknown = policies.mfaMethodsOf(name, nowMs).filter(({ method }) => mfa.method(method) === undefined)
  return unknown.slice(0, METHOD_WARNINGS_MAX).map(({ at, method, path: rule }) => {
    const problem = `unknown MFA method ${JSON.stringify(method)} in mfa_methods of path ${JSON.stringify(rule)}`
    return `${at.line}:${at.column}: ${problem}: the rule denies every request until the method exists`
  })
}

function casOf({ cas }: PolicySettings): { cas?: number } {
  return cas === undefined ? {} : { cas }
}

function changeOf(document: string | undefined, settings: PolicySettings, nowMs: number): PolicyChange {
  return {
    text: document === undefined ? undefined : decodeDocument(document),
    expiresAtMs: expiryOf(settings, nowMs),
    casRequired: settings.cas_required,
    freeSlashes: settings.allow_slashes_in_identity_templates,
    freeWildcards: settings.allow_wildcards_in_identity_templates,
  }
}

/** Decodes base64. A document is never valid base64, because it has braces, quotes or an equals sign in the middle. */
function decodeDocument(document: string): string {
  const encoded = document.trim()
  if (encoded === '' || encoded.length % 4 !== 0 || !/^[A-Za-z0-9+/]+={0,2}$/.test(encoded)) return document
  return Buffer.from(encoded, 'base64').toString('utf8')
}

function expiryOf({ expiration, ttl }: PolicySettings, nowMs: number): number | undefined {
  if (ttl !== undefined && expiration !== undefined) {
    throw new Rejection(400, 'expiration and ttl are mutually exclusive')
  }
  if (ttl !== undefined) return ttl === 0 ? undefined : nowMs + ttl * 1000
  if (expiration === undefined || expiration === '') return undefined
  const at = /^\d{4}-\d\d-\d\dT/.test(expiration) ? Date.parse(expiration) : Number.NaN
  if (Number.isNaN(at)) throw new Rejection(400, 'expiration must be a time such as "2027-01-31T12:00:00Z"')
  if (at <= nowMs) throw new Rejection(400, 'expiration must be in the future')
  return at
}
