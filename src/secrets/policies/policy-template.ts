/**
 * Templates in the paths of rules: `{{identity.entity.id}}` and its like stand for facts about the caller.
 *
 * A template that cannot be filled in (no entity, an unknown key, not a member of the group, an empty value) makes the
 * rule fall away for this caller; it is no error. The same goes for a value that would turn into a wildcard or into further
 * segments: whoever may name an entity must not thereby write policies. Where such a rule restricts, it becomes a barrier:
 * everything below the text before its first template is denied, because the path that it restricts cannot be told.
 */

/** What identity knows about the caller. The object is replaced, not changed, when a fact changes: caches rely on it. */
export interface EntityFacts {
  readonly id: string
  readonly name: string
  readonly metadata: Readonly<Record<string, string>>
  readonly aliases: readonly AliasFacts[]
  /** Those that the entity is a member of, by inheritance too. */
  readonly groups: readonly GroupFacts[]
}

export interface AliasFacts {
  readonly mountAccessor: string
  readonly id: string
  readonly name: string
  readonly metadata: Readonly<Record<string, string>>
  readonly customMetadata: Readonly<Record<string, string>>
}

export interface GroupFacts {
  readonly id: string
  readonly name: string
  readonly metadata: Readonly<Record<string, string>>
}

export interface TemplateFreedom {
  /** Values may hold `/`. */
  readonly slashes: boolean
  /** Values may hold `*` and `+`, which then are wildcards. */
  readonly wildcards: boolean
}

export function isTemplate(path: string): boolean {
  return path.includes('{{')
}

/** Whether every `{{` is closed by a `}}` before the next one, and no `}}` stands alone. */
export function bracesPair(path: string): boolean {
  const [first = '', ...rest] = path.split('{{')
  return !first.includes('}}') && rest.every((piece) => piece.split('}}').length === 2)
}

export type Filled = { readonly path: string } | 'no value' | 'unsafe value'

/** The path for this caller, or why there is none. */
export function fillTemplate(path: string, entity: EntityFacts | undefined, free: TemplateFreedom): Filled {
  if (!entity || !bracesPair(path)) return 'no value'
  const [first = '', ...rest] = path.split('{{')
  let filled = first
  for (const piece of rest) {
    const end = piece.indexOf('}}')
    const value = factOf(piece.slice(0, end).trim(), entity)
    if (value === undefined || value === '') return 'no value'
    if (!free.slashes && value.includes('/')) return 'unsafe value'
    if (!free.wildcards && /[*+]/.test(value)) return 'unsafe value'
    filled += value + piece.slice(end + 2)
  }
  return filled.includes('+*') ? 'unsafe value' : { path: filled }
}

function factOf(expression: string, entity: EntityFacts): string | undefined {
  const aliasRest = afterPrefix(expression, 'identity.entity.aliases.')
  if (aliasRest !== undefined) return aliasFact(aliasRest, entity.aliases)
  const entityRest = afterPrefix(expression, 'identity.entity.')
  if (entityRest !== undefined) return namedFact(entityRest, entity)
  const byId = afterPrefix(expression, 'identity.groups.ids.')
  if (byId !== undefined) return groupFact(byId, entity.groups, 'id')
  const byName = afterPrefix(expression, 'identity.groups.names.')
  return byName === undefined ? undefined : groupFact(byName, entity.groups, 'name')
}

function aliasFact(rest: string, aliases: readonly AliasFacts[]): string | undefined {
  for (const alias of aliases) {
    const fact = afterPrefix(rest, `${alias.mountAccessor}.`)
    if (fact === undefined) continue
    const key = afterPrefix(fact, 'custom_metadata.')
    return key === undefined ? namedFact(fact, alias) : ownValue(alias.customMetadata, key)
  }
  return undefined
}

/** Names may hold dots, so the longest name that fits is meant. */
function groupFact(rest: string, groups: readonly GroupFacts[], by: 'id' | 'name'): string | undefined {
  const longestFirst = groups.toSorted((a, b) => b[by].length - a[by].length)
  const group = longestFirst.find((each) => rest.startsWith(`${each[by]}.`))
  return group && namedFact(rest.slice(group[by].length + 1), group)
}

function namedFact(fact: string, subject: GroupFacts): string | undefined {
  if (fact === 'id') return subject.id
  if (fact === 'name') return subject.name
  const key = afterPrefix(fact, 'metadata.')
  return key === undefined ? undefined : ownValue(subject.metadata, key)
}

function ownValue(record: Readonly<Record<string, string>>, key: string): string | undefined {
  return Object.hasOwn(record, key) ? record[key] : undefined
}

function afterPrefix(text: string, prefix: string): string | undefined {
  return text.startsWith(prefix) ? text.slice(prefix.length) : undefined
}
