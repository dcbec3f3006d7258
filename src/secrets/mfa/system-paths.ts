/** `sys/mfa/method`: TOTP methods by their names, and the secrets of entities. */
import { denied, type EngineCall, type Path, path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { boolean, inPath, text } from '../../engines/framework/fields.ts'
import { runSliced, type SlicedWork } from '../../platform/sliced-work.ts'
import { checkedMethodName, checkedSettings, type Method, METHOD_FIELDS, toldMethod } from './mfa-method.ts'
import type { Mfa } from './mfa.ts'
import {
  checkQrSize,
  confirmed,
  destroyed,
  generated,
  type MethodUses,
  removed,
  toldSecret,
  unlockedSecret,
} from './secret-operations.ts'

export interface MfaParts {
  /** Throws a Refusal (503) while the core is sealed. */
  readonly open: MethodUses
  /** Milliseconds since 1970, by the clock that lives are measured with. */
  now(): number
}

const NAME = { name: inPath('Name or ID of the method') }
export const ENTITY_ID = text('ID of the entity', { fallback: '' })
export const PASSCODE = { ...text('A code of the secret', { fallback: '' }), isSecret: true }
export const REPLACE = boolean('Destroy the secret that the entity has, and generate another one, in one step', {
  fallback: false,
})

export const FORCE = boolean('Remove the method also while policies name it: their rules deny every request then', {
  fallback: false,
})

export function mfaSystemPaths(core: MfaParts): Path[] {
  const paths = [...methodPaths(core), ...secretPaths(core), ...entityPaths(core)]
  return paths.map((each) => withRightsByName(core, each))
}

/** A method that has a name is also found by its ID. Such a request needs the rights of the path with the name, too. */
function withRightsByName(core: MfaParts, declared: Path): Path {
  const at = declared.pattern.split('/').indexOf(':name')
  if (at < 0) return declared
  const handlers = Object.entries(declared.handlers).map(([verb, handler]) => {
    const checked: typeof handler = (input, call) => {
      const segments = call.path.split('/')
      const given = segments[at] ?? ''
      const name = core.open.mfa.method(given)?.name ?? ''
      const pathByName = segments.with(at, name).join('/')
      if (name !== '' && name !== given && !call.allows(call.verb, pathByName, call.data)) throw denied()
      return handler(input, call)
    }
    return [verb, checked] as const
  })
  return { ...declared, handlers: Object.fromEntries(handlers) }
}

function methodPaths(core: MfaParts): Path[] {
  return [
    path({
      pattern: 'mfa/method',
      summary: 'Names of the MFA methods',
      fields: {},
      list: () => ({
        data: listedMethods(
          core.open.mfa.methods.filter(({ name }) => name !== ''),
          'name',
        ),
      }),
    }),
    path({
      pattern: 'mfa/method/totp',
      summary: 'Names of the TOTP methods',
      fields: {},
      list: () => ({
        data: listedMethods(
          core.open.mfa.methods.filter(({ name }) => name !== ''),
          'name',
        ),
      }),
    }),
    path({
      pattern: 'mfa/method/totp/:name',
      summary: 'A TOTP method',
      fields: { ...METHOD_FIELDS, ...NAME, force: FORCE },
      read({ name }) {
        const method = core.open.mfa.method(name)
        return method && { data: toldMethod(method) }
      },
      async update(input) {
        const { mfa } = core.open
        const known = mfa.method(input.name)
        const which = known ? { id: known.id } : { name: checkedMethodName(input.name) }
        const settings = checkedSettings(input)
        await checkQrSize(settings)
        await mfa.write(which, settings)
        return undefined
      },
      delete: ({ force, name }, call) => removed(core.open, core.open.mfa.method(name), { call, force }),
    }),
  ]
}

/** Methods by their names or IDs, with what they are. */
export function listedMethods(
  methods: readonly Method[],
  by: 'name' | 'id',
  more: object = {},
): Record<string, unknown> {
  const info = Object.fromEntries(methods.map((method) => [method[by], { ...toldMethod(method), ...more }]))
  return { keys: Object.keys(info), ...(methods.length > 0 && { key_info: info }) }
}

/** Throws a Rejection (400) for a method that is not there. */
function named(core: MfaParts, name: string): Method {
  const method = core.open.mfa.method(name)
  if (!method) throw new Rejection(400, `configuration for method name ${JSON.stringify(name)} does not exist`)
  return method
}

function secretPaths(core: MfaParts): Path[] {
  const destroy = ({ entity_id: entityId, name }: { entity_id: string; name: string }) =>
    destroyed(core.open.mfa, named(core, name), entityId)
  return [
    path({
      pattern: 'mfa/method/totp/:name/generate',
      summary: "Generate a secret for the caller's entity",
      fields: NAME,
      readChanges: true,
      read: ({ name }, { caller }) => generated(core.open.mfa, named(core, name), caller.entityId),
    }),
    path({
      pattern: 'mfa/method/totp/:name/confirm',
      summary: "Put the secret of the caller's entity in force by its first code",
      fields: { ...NAME, passcode: PASSCODE },
      update: ({ name, passcode }, { caller }) =>
        confirmed(core.open.mfa, named(core, name), caller.entityId, passcode),
    }),
    path({
      pattern: 'mfa/method/totp/:name/admin-generate',
      summary: 'Generate a secret for an entity',
      fields: { ...NAME, entity_id: ENTITY_ID, replace: REPLACE },
      update: ({ entity_id: entityId, name, replace: replaces }) =>
        generated(core.open.mfa, named(core, name), entityId, { replaces }),
    }),
    path({
      pattern: 'mfa/method/totp/:name/admin-confirm',
      summary: 'Put the secret of an entity in force by its first code',
      fields: { ...NAME, entity_id: ENTITY_ID, passcode: PASSCODE },
      update: ({ entity_id: entityId, name, passcode }) =>
        confirmed(core.open.mfa, named(core, name), entityId, passcode),
    }),
    path({
      pattern: 'mfa/method/totp/:name/admin-unlock',
      summary: 'End the lock-out of an entity',
      fields: { ...NAME, entity_id: ENTITY_ID },
      update: ({ entity_id: entityId, name }) => unlockedSecret(core.open.mfa, named(core, name), entityId),
    }),
    path({
      pattern: 'mfa/method/totp/:name/admin-destroy',
      summary: 'Destroy the secret of an entity',
      fields: { ...NAME, entity_id: ENTITY_ID },
      update: destroy,
    }),
    path({
      pattern: 'mfa/method/:name/admin-destroy',
      summary: 'Destroy the secret of an entity',
      fields: { ...NAME, entity_id: ENTITY_ID },
      update: destroy,
    }),
  ]
}

function entityPaths(core: MfaParts): Path[] {
  return [
    path({
      pattern: 'mfa/method/totp/:name/entity',
      summary: 'IDs of the entities that have a secret',
      fields: NAME,
      list: ({ name }, call) => listedEntities(core.open.mfa, named(core, name), call),
    }),
    path({
      pattern: 'mfa/method/totp/:name/entity/:entity_id',
      summary: 'When a secret was made and used, and what failed',
      fields: { ...NAME, entity_id: inPath('ID of the entity') },
      read({ entity_id: givenId, name }) {
        const { mfa } = core.open
        const entityId = mfa.entityOf(givenId)
        const secret = entityId === undefined ? undefined : mfa.secretOf(named(core, name).id, entityId)
        return entityId !== undefined && secret ? { data: toldSecret(entityId, secret, core.now()) } : undefined
      },
    }),
  ]
}

async function listedEntities(mfa: Mfa, { id }: Method, call: EngineCall): Promise<Reply> {
  return { data: { keys: await runSliced(idsOf(mfa, id, call.limitMax), call) } }
}

function* idsOf(mfa: Mfa, methodId: string, most = Number.POSITIVE_INFINITY): SlicedWork<string[]> {
  const ids: string[] = []
  for (const id of mfa.entityIds(methodId)) {
    if (ids.length >= most) break
    ids.push(id)
    yield 1
  }
  return ids
}
