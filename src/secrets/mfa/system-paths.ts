/** `sys/mfa/method`: TOTP methods by name, and the secrets of entities. */
import { denied, type EngineCall, type Path, path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { boolean, inPath, text } from '../../engines/framework/fields.ts'
import { runSliced, type SlicedWork } from '../../platform/sliced-work.ts'
import { METHOD_FIELDS, methodInfo, parseMethodName, parseSettings, type TotpMethod } from './mfa-method.ts'
import type { Mfa } from './mfa.ts'
import {
  checkQrSize,
  confirmSecret,
  destroySecret,
  generateSecret,
  type MethodReferences,
  removeMethod,
  secretInfo,
  unlockEntity,
} from './secret-operations.ts'

export interface MfaParts {
  /** Throws a Refusal (503) while the core is sealed. */
  readonly open: MethodReferences
  /** Milliseconds since 1970, by the clock for TTLs. */
  now(): number
}

const NAME = { name: inPath('Name or ID of the method') }
export const ENTITY_ID = text('ID of the entity', { fallback: '' })
export const PASSCODE = { ...text('A code of the secret', { fallback: '' }), isSecret: true }
export const REPLACE = boolean('Replace the existing secret of the entity', {
  fallback: false,
})

export const FORCE = boolean('Remove the method even if policies name it, after which their rules deny every request', {
  fallback: false,
})

export function mfaSystemPaths(core: MfaParts): Path[] {
  const paths = [...methodPaths(core), ...secretPaths(core), ...entityPaths(core)]
  return paths.map((each) => requireAccessByName(core, each))
}

/** A request with the ID of a method also needs permission for the path with the method's name. */
function requireAccessByName(core: MfaParts, declared: Path): Path {
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
  const listNamed = () => {
    const named = core.open.mfa.methods.filter(({ name }) => name !== '')
    return { data: methodList(named, 'name') }
  }
  return [
    path({
      pattern: 'mfa/method',
      summary: 'List the MFA methods',
      fields: {},
      list: listNamed,
    }),
    path({
      pattern: 'mfa/method/totp',
      summary: 'List the TOTP methods',
      fields: {},
      list: listNamed,
    }),
    path({
      pattern: 'mfa/method/totp/:name',
      summary: 'Read, write or delete a TOTP method',
      fields: { ...METHOD_FIELDS, ...NAME, force: FORCE },
      read({ name }) {
        const method = core.open.mfa.method(name)
        return method && { data: methodInfo(method) }
      },
      async update(input) {
        const { mfa } = core.open
        const known = mfa.method(input.name)
        const reference = known ? { id: known.id } : { name: parseMethodName(input.name) }
        const settings = parseSettings(input)
        await checkQrSize(settings)
        await mfa.write(reference, settings)
        return undefined
      },
      delete: ({ force, name }, call) => removeMethod(core.open, core.open.mfa.method(name), { call, force }),
    }),
  ]
}

/** The names or IDs of methods, with their parameters. */
export function methodList(
  methods: readonly TotpMethod[],
  by: 'name' | 'id',
  more: object = {},
): Record<string, unknown> {
  const info = Object.fromEntries(methods.map((method) => [method[by], { ...methodInfo(method), ...more }]))
  return { keys: Object.keys(info), ...(methods.length > 0 && { key_info: info }) }
}

/** Throws a Rejection (400) for an unknown method. */
function requireMethod(core: MfaParts, name: string): TotpMethod {
  const method = core.open.mfa.method(name)
  if (!method) throw new Rejection(400, `configuration for method name ${JSON.stringify(name)} does not exist`)
  return method
}

function secretPaths(core: MfaParts): Path[] {
  const destroy = ({ entity_id: entityId, name }: { entity_id: string; name: string }) =>
    destroySecret(core.open.mfa, requireMethod(core, name), entityId)
  return [
    path({
      pattern: 'mfa/method/totp/:name/generate',
      summary: "Generate a secret for the caller's entity",
      fields: NAME,
      readChanges: true,
      read: ({ name }, { caller }) => generateSecret(core.open.mfa, requireMethod(core, name), caller.entityId),
    }),
    path({
      pattern: 'mfa/method/totp/:name/confirm',
      summary: "Activate the secret of the caller's entity with its first code",
      fields: { ...NAME, passcode: PASSCODE },
      update: ({ name, passcode }, { caller }) =>
        confirmSecret(core.open.mfa, requireMethod(core, name), caller.entityId, passcode),
    }),
    path({
      pattern: 'mfa/method/totp/:name/admin-generate',
      summary: 'Generate a secret for an entity',
      fields: { ...NAME, entity_id: ENTITY_ID, replace: REPLACE },
      update: ({ entity_id: entityId, name, replace: replaces }) =>
        generateSecret(core.open.mfa, requireMethod(core, name), entityId, { replaces }),
    }),
    path({
      pattern: 'mfa/method/totp/:name/admin-confirm',
      summary: 'Activate the secret of an entity with its first code',
      fields: { ...NAME, entity_id: ENTITY_ID, passcode: PASSCODE },
      update: ({ entity_id: entityId, name, passcode }) =>
        confirmSecret(core.open.mfa, requireMethod(core, name), entityId, passcode),
    }),
    path({
      pattern: 'mfa/method/totp/:name/admin-unlock',
      summary: 'Unlock an entity',
      fields: { ...NAME, entity_id: ENTITY_ID },
      update: ({ entity_id: entityId, name }) => unlockEntity(core.open.mfa, requireMethod(core, name), entityId),
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
      summary: 'List the IDs of the entities that have a secret',
      fields: NAME,
      list: ({ name }, call) => listEntities(core.open.mfa, requireMethod(core, name), call),
    }),
    path({
      pattern: 'mfa/method/totp/:name/entity/:entity_id',
      summary: 'Read the state of a secret: creation, last use and failures',
      fields: { ...NAME, entity_id: inPath('ID of the entity') },
      read({ entity_id: givenId, name }) {
        const { mfa } = core.open
        const entityId = mfa.entityOf(givenId)
        const secret = entityId === undefined ? undefined : mfa.secretOf(requireMethod(core, name).id, entityId)
        return entityId !== undefined && secret ? { data: secretInfo(entityId, secret, core.now()) } : undefined
      },
    }),
  ]
}

async function listEntities(mfa: Mfa, { id }: TotpMethod, call: EngineCall): Promise<Reply> {
  return { data: { keys: await runSliced(idsOf(mfa, id, call.limitMax), call) } }
}

function* idsOf(mfa: Mfa, methodId: string, limit = Number.POSITIVE_INFINITY): SlicedWork<string[]> {
  const ids: string[] = []
  for (const id of mfa.entityIds(methodId)) {
    if (ids.length >= limit) break
    ids.push(id)
    yield 1
  }
  return ids
}
