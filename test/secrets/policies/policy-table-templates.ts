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
    '5: without an entity a rule with a template that only grants falls away',
    [
      grant('kv/{{identity.entity.id}}/*', 'read'),
      grant('kv/shared/{{identity.entity.id}}', 'read'),
      grant('kv/shared/*', 'read'),
    ],
    `
    read kv/e-1/a deny
    read kv/{{identity.entity.id}}/a deny
    read kv//a deny
    read kv/shared/x allow
    caps kv/e-1/a deny`,
  ),
  shows(
    '5: without an entity a rule with a template that restricts denies what it could be for',
    [
      grant('kv/*', 'read list'),
      grant('kv/deny/{{identity.entity.name}}', 'deny'),
      grant('kv/deny/alice', 'read'),
      grant('kv/+/for-{{identity.entity.name}}/x', 'deny'),
    ],
    `
    read kv/deny/alice deny
    read kv/deny/bob/x deny
    list kv/deny allow
    read kv/deny allow
    read kv/denied allow
    read kv/a/for-bob/x deny
    read kv/a/for-bob deny
    read kv/a/to-bob/x allow
    caps kv/deny/alice deny`,
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
  ...['star', 'plus', 'slash', 'empty', 'none'].flatMap((fact) =>
    [
      grant(`kv/own/{{identity.entity.metadata.${fact}}}`, 'deny'),
      grant(`kv/own/{{identity.entity.metadata.${fact}}}/*`, ''),
      grant(`kv/own/{{identity.entity.metadata.${fact}}}`, 'read', 'mfa_methods = ["m"]'),
      grant(`kv/own/{{identity.entity.metadata.${fact}}}`, 'read', 'required_parameters = ["a"]'),
      grant(`kv/own/{{identity.entity.metadata.${fact}}}`, 'read', 'denied_parameters = { a = [] }'),
      grant(`kv/own/{{identity.entity.metadata.${fact}}}`, 'read', 'allowed_parameters = { a = [] }'),
      grant(`kv/own/{{identity.entity.metadata.${fact}}}`, 'read', 'min_wrapping_ttl = "1m"'),
      grant(`kv/own/{{identity.entity.metadata.${fact}}}`, 'read', 'max_wrapping_ttl = "1m"'),
      grant(`kv/own/{{identity.entity.metadata.${fact}}}`, 'list', 'pagination_limit = 3'),
    ].map((restriction) =>
      shows(
        `5: ${restriction} denies what it could be for`,
        [grant('kv/*', 'read update'), grant('kv/own/y', 'read'), restriction],
        `
        read kv/x allow
        read kv/own/x deny
        update kv/own/y deny
        caps kv/own/y deny
        read kv/own allow`,
        true,
      ),
    ),
  ),
  shows(
    '5: a rule that restricts one folder for each value leaves the list of these folders, also with a + before the template',
    [
      grant('kv/*', 'read list'),
      grant('+/own/{{identity.entity.metadata.none}}', 'deny'),
      grant('kv/other/{{identity.entity.metadata.none}}/*', 'deny'),
    ],
    `
    list kv/own/ allow
    list kv/own/x/ deny
    read kv/own/x deny
    read kv/own/x/y deny
    list kv/other/ allow
    list kv/other/x/ deny`,
    true,
  ),
  shows(
    '5: a template at the beginning of a rule that restricts leaves nothing',
    [grant('kv/*', 'read'), grant('{{identity.entity.metadata.none}}/x', 'deny')],
    `
    read kv/x deny
    caps kv/x deny`,
    true,
  ),
]
