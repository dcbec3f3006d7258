/**
 * Templates in the paths of rules: expressions such as `{{identity.entity.id}}` stand for facts about the caller.
 *
 * If a template has no value (no entity, an unknown key, no membership in the group, an empty value), the rule does not apply to the
 * caller; that is not an error. The same holds for a value with wildcards or slashes: otherwise anyone who can name an entity could change
 * the meaning of policies. If such a rule is a restriction, it becomes a barrier (`acl.ts`): everything below the text before its first
 * template is denied, because the restricted path is unknown.
 */

/** Facts about the caller's entity. The object is replaced, not modified, when a fact changes: caches rely on it. */
export interface EntityFacts {
  readonly id: string
  readonly name: string
  readonly metadata: Readonly<Record<string, string>>
  readonly aliases: readonly AliasFacts[]
  /** Direct and inherited groups. */
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

export interface TemplateOptions {
  /** Whether values may contain `/`. */
  readonly slashes: boolean
  /** Whether values may contain `*` and `+`, which then are wildcards. */
  readonly wildcards: boolean
}

export function isTemplate(path: string): boolean {
  return path.includes('{{')
}

/** Whether every `{{` has its `}}` before the next `{{`, and there is no other `}}`. */
export function hasBalancedBraces(path: string): boolean {
  const [first = '', ...rest] = path.split('{{')
  return !first.includes('}}') && rest.every((piece) => piece.split('}}').length === 2)
}

export type FilledPath = { readonly path: string } | 'no value' | 'unsafe value'

/** The path for this caller, or the reason why the rule does not apply. */
export function fillTemplate(path: string, entity: EntityFacts | undefined, allowed: TemplateOptions): FilledPath {
  if (!entity || !hasBalancedBraces(path)) return 'no value'
  const [first = '', ...rest] = path.split('{{')
  let filled = first
  for (const piece of rest) {
    const end = piece.indexOf('}}')
    const value = factOf(piece.slice(0, end).trim(), entity)
    if (value === undefined || value === '') return 'no value'
    if (!allowed.slashes && value.includes('/')) return 'unsafe value'
    if (!allowed.wildcards && /[*+]/.test(value)) return 'unsafe value'
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

/** Names can contain dots, so the longest matching name is used. */
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
