/** `sys/plugins/catalog`: the engines that can be enabled. All are built in; plugins cannot be registered. */
import { type Engine, path, type Path, Rejection } from '../../engines/framework/engine.ts'
import { inPath, text } from '../../engines/framework/fields.ts'
import type { WithOptions } from './core-parts.ts'
import { builtinVersion } from '../mounts/mount-info.ts'

const TYPES = ['auth', 'database', 'secret'] as const
type CatalogType = (typeof TYPES)[number]

const TYPE = { type: inPath('`auth`, `database` or `secret`') }

export interface CatalogParts extends WithOptions<'version'> {
  readonly engines: readonly Engine[]
}

export function catalogPaths(core: CatalogParts): Path[] {
  return [
    path({
      pattern: 'plugins/catalog',
      summary: 'List the engines that can be enabled',
      fields: {},
      read() {
        const names = Object.fromEntries(TYPES.map((type) => [type, namesOf(core, type)]))
        return { data: { ...names, detailed: TYPES.flatMap((type) => namesOf(core, type).map(detail(core, type))) } }
      },
    }),
    path({
      pattern: 'plugins/catalog/:type',
      summary: 'List the engines of a type that can be enabled',
      sudo: true,
      fields: TYPE,
      list: ({ type }) => ({ data: { keys: namesOf(core, typeOf(type)) } }),
      read: ({ type }) => ({ data: { keys: namesOf(core, typeOf(type)) } }),
    }),
    path({
      pattern: 'plugins/catalog/:type/:name',
      summary: 'Read an engine that can be enabled',
      sudo: true,
      fields: { ...TYPE, name: inPath('Type of the engine'), version: text('Must be the built-in version') },
      read({ name, type, version = '' }) {
        const known = typeOf(type)
        const info = detail(core, known)(name)
        if (!namesOf(core, known).includes(name) || (version !== '' && version !== info.version)) return undefined
        return { data: { ...info, args: null, command: '', sha256: '' } }
      },
    }),
  ]
}

function typeOf(given: string): CatalogType {
  const type = TYPES.find((each) => each === given)
  if (!type) throw new Rejection(400, `"${given.slice(0, 64)}" is not a supported plugin type`)
  return type
}

function namesOf({ engines }: CatalogParts, type: CatalogType): string[] {
  const offered = engines.filter((each: Engine) => !each.isSingle && (each.kind ?? 'secret') === type)
  return offered.map((each) => each.type).sort()
}

function detail(core: CatalogParts, type: CatalogType) {
  const version = builtinVersion(core.options.version)
  return (name: string) => ({ builtin: true, deprecation_status: 'supported', name, type, version })
}
