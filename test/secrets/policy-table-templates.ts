/** Rows of the table of policies about templates in paths. */
import { grant, shows } from './policy-rows.ts'
import type { TableCase } from './policy-rows.ts'

/** The facts that templates of the table are filled with. */
export const ALICE = {
  id: 'e-1',
  name: 'alice',
  metadata: { team: 'red', 'a.b': 'dotted', star: 'x*', plus: '+', slash: 'a/b', empty: '' },
  aliases: [
    {
      mountAccessor: 'userpass_1',
      id: 'al-1',
      name: 'alice@up',
      metadata: { level: 'l1' },
      customMetadata: { cost: 'cc9' },
    },
  ],
  groups: [
    { id: 'g-1', name: 'ops', metadata: { floor: 'f3' } },
    { id: 'g-2', name: 'ops.night', metadata: {} },
  ],
}

export const TEMPLATE_CASES: readonly TableCase[] = [
  shows(
    '5: without an entity a rule with a template falls away',
    [
      grant('kv/{{identity.entity.id}}/*', 'read'),
      grant('kv/deny/{{identity.entity.name}}', 'deny'),
      grant('kv/deny/*', 'read'),
    ],
    `
    read kv/e-1/a deny
    read kv/{{identity.entity.id}}/a deny
    read kv//a deny
    read kv/deny/alice allow
    caps kv/e-1/a deny`,
  ),
  shows(
    '5: templates are filled with facts about the entity',
    [
      grant('kv/id/{{identity.entity.id}}/*', 'read'),
      grant('kv/name/{{ identity.entity.name }}', 'read'),
      grant('kv/meta/{{identity.entity.metadata.team}}/x', 'read'),
      grant('kv/dots/{{identity.entity.metadata.a.b}}', 'read'),
      grant('kv/al/{{identity.entity.aliases.userpass_1.id}}/{{identity.entity.aliases.userpass_1.name}}', 'read'),
      grant(
        'kv/alm/{{identity.entity.aliases.userpass_1.metadata.level}}/{{identity.entity.aliases.userpass_1.custom_metadata.cost}}',
        'read',
      ),
      grant('kv/gn/{{identity.groups.ids.g-1.name}}/{{identity.groups.ids.g-1.metadata.floor}}', 'read'),
      grant('kv/gi/{{identity.groups.names.ops.id}}', 'read'),
      grant('kv/gd/{{identity.groups.names.ops.night.id}}', 'read'),
      grant('kv/+/{{identity.entity.name}}-*', 'list'),
    ],
    `
    read kv/id/e-1/a allow
    read kv/id/e-2/a deny
    read kv/name/alice allow
    read kv/name/bob deny
    read kv/meta/red/x allow
    read kv/meta/blue/x deny
    read kv/dots/dotted allow
    read kv/al/al-1/alice@up allow
    read kv/alm/l1/cc9 allow
    read kv/gn/ops/f3 allow
    read kv/gi/g-1 allow
    read kv/gd/g-2 allow
    list kv/any/alice-1/ allow
    list kv/any/bob-1/ deny
    caps kv/name/alice read`,
    true,
  ),
  shows(
    '5: what cannot be filled in, or would be a wildcard or further segments, falls away',
    [
      grant('kv/a/{{identity.entity.metadata.none}}*', 'read'),
      grant('kv/b/{{identity.entity.metadata.star}}', 'read'),
      grant('kv/c/{{identity.entity.metadata.plus}}/x', 'read'),
      grant('kv/d/{{identity.entity.metadata.slash}}', 'read'),
      grant('kv/e/{{identity.entity.metadata.empty}}*', 'read'),
      grant('kv/f/{{identity.groups.names.strangers.id}}*', 'read'),
      grant('kv/g/{{identity.entity.aliases.ldap_9.name}}*', 'read'),
      grant('kv/h/{{identity.entity.metadata.constructor}}*', 'read'),
      grant('kv/i/{{something.else}}*', 'read'),
      grant('kv/k/{{identity.entity.metadata.team}}', 'read'),
    ],
    `
    read kv/a/ deny
    read kv/a/x deny
    read kv/b/xy deny
    read kv/b/x* deny
    read kv/c/z/x deny
    read kv/c/+/x deny
    read kv/d/a/b deny
    read kv/e/x deny
    read kv/f/x deny
    read kv/g/x deny
    read kv/h/x deny
    read kv/i/x deny
    read kv/k/red allow`,
    true,
  ),
  shows(
    '5: a rule that denies and cannot be filled in safely leaves nothing',
    [grant('kv/*', 'read'), grant('kv/deny/{{identity.entity.metadata.star}}', 'deny'), grant('kv/a', 'update')],
    `
    read kv/x deny
    read kv/deny/x deny
    update kv/a deny
    caps kv/a deny`,
    true,
  ),
  shows(
    '5: a rule that denies falls away without a value, as any other',
    [grant('kv/*', 'read'), grant('kv/deny/{{identity.entity.metadata.none}}', 'deny')],
    `
    read kv/x allow
    read kv/deny/x allow`,
    true,
  ),
]
