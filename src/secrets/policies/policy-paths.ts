/** `sys/policies/acl` and the older `sys/policy`: reading and writing policies. */
import type { EngineCall, Path, Reply } from '../../engines/framework/engine.ts'
import { path, Rejection } from '../../engines/framework/engine.ts'
import { aliasField, boolean, duration, inPath, integer, text } from '../../engines/framework/fields.ts'
import type { PolicyChange, PolicyRecord, PolicyStore } from './policy-store.ts'

const NAME = inPath('Name of the policy; taken in lower case and without white space around it', {
  fold: 'case and spaces',
})
const PREFIX = inPath('What the names begin with', { fold: 'case' })

const SETTINGS = {
  expiration: text('When the policy ends, as in "2027-01-31T12:00:00Z"'),
  ttl: duration('After what time the policy ends'),
  cas: integer('The version that is to be replaced, 0 or -1 for none; another one is left as it is'),
  cas_required: boolean('True when every later write must give `cas`'),
  allow_slashes_in_identity_templates: boolean('Lets the values of templates hold slashes'),
  allow_wildcards_in_identity_templates: boolean('Lets `*` and `+` in the values of templates be wildcards'),
}

const POLICY = text('The document, HCL or JSON, or base64 of it')

type Settings = {
  readonly [K in keyof typeof SETTINGS]: (typeof SETTINGS)[K]['fallback']
}

/** The policies, and what tells whether an MFA method that a rule names is there. */
interface PolicyParts {
  /** Throws a Refusal (503) while the core is sealed. */
  readonly open: {
    readonly policies: PolicyStore
    readonly mfa: { method(reference: string): object | undefined }
  }
}

export function policyPaths(core: PolicyParts): Path[] {
  const store = () => core.open.policies
  return [
    path({
      pattern: 'policies/acl',
      summary: 'Names of the policies',
      fields: {},
      list: (_input, { nowMs }) => ({ data: { keys: allNames(store(), '', nowMs) } }),
    }),
    path({
      pattern: 'policies/acl/:name*',
      summary: 'One policy',
      fields: { name: NAME, policy: POLICY, ...SETTINGS },
      list: ({ name }, call) => namesBelow(store(), name, call),
      read: ({ name }, call) => shown(store(), name, call, 'policy'),
      update: ({ name, policy, ...settings }, call) => write(core, name, policy, settings, call, []),
      patch: async ({ name, policy, ...settings }, call) => {
        const { nowMs } = call
        const change = changeOf(policy, settings, nowMs)
        await store().write(name, change, { nowMs, patch: true, ...casOf(settings) })
        return { data: null, warnings: [...converted(name, call), ...unknownMethods(core, name, nowMs)] }
      },
      delete: ({ name }) => removed(store(), name),
    }),
    path({
      pattern: 'policies/detailed/acl/:prefix*',
      summary: 'Policies with their documents',
      fields: { prefix: PREFIX },
      list: ({ prefix }, call) => detailed(store(), prefix, call),
    }),
    ...olderPaths(core),
  ]
}

function olderPaths(core: PolicyParts): Path[] {
  const store = () => core.open.policies
  const names = (nowMs: number): Reply => {
    const keys = allNames(store(), '', nowMs)
    return { data: { keys, policies: keys }, flattened: true }
  }
  return [
    path({
      pattern: 'policy',
      summary: 'Names of the policies',
      fields: {},
      read: (_input, { nowMs }) => names(nowMs),
      list: (_input, { nowMs }) => names(nowMs),
    }),
    path({
      pattern: 'policy/:name*',
      summary: 'One policy',
      fields: { name: NAME, policy: POLICY, rules: aliasField(text('Old name of `policy`'), 'policy'), ...SETTINGS },
      read: ({ name }, call) => shown(store(), name, call, 'rules'),
      update: ({ name, policy, rules, ...settings }, call) => {
        if (policy !== undefined || rules === undefined) return write(core, name, policy, settings, call, [])
        return write(core, name, rules, settings, call, ["'rules' is deprecated, please use 'policy' instead"])
      },
      delete: ({ name }) => removed(store(), name),
    }),
  ]
}

/** As they are listed: `root` behind the others. */
function allNames(store: PolicyStore, prefix: string, nowMs: number): string[] {
  return [...store.names(prefix, nowMs), ...('root'.startsWith(prefix) ? ['root'] : [])]
}

function namesBelow(store: PolicyStore, prefix: string, call: EngineCall): Reply {
  return { data: { keys: allNames(store, prefix, call.nowMs) } }
}

async function removed(store: PolicyStore, name: string): Promise<undefined> {
  await store.remove(name)
}

function shown(store: PolicyStore, name: string, { nowMs }: EngineCall, member: 'policy' | 'rules'): Reply | undefined {
  const record = store.find(name, nowMs)
  if (!record && name !== 'root') return undefined
  return { data: { ...facts(record), name, [member]: record?.text ?? '' }, flattened: member === 'rules' }
}

/** Without a record, those of `root`. */
function facts(record: PolicyRecord | undefined): Record<string, unknown> {
  return {
    allow_slashes_in_identity_templates: record?.freeSlashes ?? false,
    allow_wildcards_in_identity_templates: record?.freeWildcards ?? false,
    cas_required: record?.casRequired ?? false,
    ...(record?.expiresAtMs !== undefined && { expiration: new Date(record.expiresAtMs).toISOString() }),
    ...(record && { modified: new Date(record.modifiedAtMs).toISOString() }),
    version: record?.version ?? 0,
  }
}

function detailed(store: PolicyStore, prefix: string, call: EngineCall): Reply {
  const { nowMs } = call
  const keys = allNames(store, prefix, nowMs)
  const infos = keys.map((name) => {
    const record = store.find(name, nowMs)
    return [name, { ...facts(record), name, policy: record?.text ?? '' }] as const
  })
  return { data: { keys, key_info: Object.fromEntries(infos) } }
}

async function write(
  core: PolicyParts,
  name: string,
  document: string | undefined,
  settings: Settings,
  call: EngineCall,
  warnings: readonly string[],
): Promise<Reply | undefined> {
  const { nowMs } = call
  await core.open.policies.write(name, changeOf(document ?? '', settings, nowMs), { nowMs, ...casOf(settings) })
  const all = [...converted(name, call), ...warnings, ...unknownMethods(core, name, nowMs)]
  return all.length > 0 ? { warnings: all } : undefined
}

function converted(name: string, { givenPath, path: canonical }: EngineCall): string[] {
  return givenPath === canonical ? [] : [`policy name was converted to ${name}`]
}

/** Warnings, of which a client shows each. */
const METHOD_WARNINGS_MAX = 20

/** A rule that asks for a code of a method that is not there lets nobody pass. */
function unknownMethods({ open: { mfa, policies } }: PolicyParts, name: string, nowMs: number): string[] {
  const unknown = policies.mfaMethodsOf(name, nowMs).filter(({ method }) => mfa.method(method) === undefined)
  return unknown.slice(0, METHOD_WARNINGS_MAX).map(({ at, method, path: rule }) => {
    const named = `unknown MFA method ${JSON.stringify(method)} in mfa_methods of path ${JSON.stringify(rule)}`
    return `${at.line}:${at.column}: ${named}: the rule denies every request until the method exists`
  })
}

function casOf({ cas }: Settings): { cas?: number } {
  return cas === undefined ? {} : { cas }
}

function changeOf(document: string | undefined, settings: Settings, nowMs: number): PolicyChange {
  return {
    text: document === undefined ? undefined : decoded(document),
    expiresAtMs: endOf(settings, nowMs),
    casRequired: settings.cas_required,
    freeSlashes: settings.allow_slashes_in_identity_templates,
    freeWildcards: settings.allow_wildcards_in_identity_templates,
  }
}

/** No document is base64 by chance: it has a brace, a quote or an equals sign with something behind it. */
function decoded(document: string): string {
  const packed = document.trim()
  if (packed === '' || packed.length % 4 !== 0 || !/^[A-Za-z0-9+/]+={0,2}$/.test(packed)) return document
  return Buffer.from(packed, 'base64').toString('utf8')
}

function endOf({ expiration, ttl }: Settings, nowMs: number): number | undefined {
  if (ttl !== undefined && expiration !== undefined) {
    throw new Rejection(400, 'give either expiration or ttl, not both')
  }
  if (ttl !== undefined) return ttl === 0 ? undefined : nowMs + ttl * 1000
  if (expiration === undefined || expiration === '') return undefined
  const at = /^\d{4}-\d\d-\d\dT/.test(expiration) ? Date.parse(expiration) : Number.NaN
  if (Number.isNaN(at)) throw new Rejection(400, 'expiration must be a time such as "2027-01-31T12:00:00Z"')
  if (at <= nowMs) throw new Rejection(400, 'expiration must be in the future')
  return at
}
