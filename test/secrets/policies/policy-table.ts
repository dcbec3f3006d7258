/**
 * Policies × paths × verbs, and what is to become of each: the meaning of the path rules as a table. It is data, so that
 * the compiled rules and a whole server can be asked alike.
 *
 * A row is `verb path outcome`, then JSON with what belongs to it: `data` (body, or query of a read or list), `wrap`
 * (seconds), `gives` (the limit that a list gets), `sudo` (whether the rule has it, where that matters).
 * `caps path a,b` asks for the capabilities. Creating needs something that is not there: such rows are below
 * `cubbyhole/`, each with a path of its own; nothing is mounted at `kv/`.
 */

import { grant, path, shows } from './policy-rows.ts'
import type { TableCase } from './policy-rows.ts'
import { ORDER_CASES } from '../policy-table-order.ts'
import { PARAMETER_CASES } from '../policy-table-parameters.ts'
import { TEMPLATE_CASES } from './policy-table-templates.ts'

const VERBS = ['read', 'list', 'scan', 'update', 'patch', 'delete', 'create'] as const

/** Each capability on a rule of its own, and each verb against it: granted is what is named and nothing else. */
const eachVerb = VERBS.map((granted) =>
  shows(
    `4: ${granted} grants ${granted} and nothing else`,
    [grant('kv/one', granted), grant('cubbyhole/new', granted)],
    VERBS.map((verb) => {
      const name = verb === 'create' ? 'cubbyhole/new' : 'kv/one'
      return `${verb} ${name} ${verb === granted ? 'allow' : 'deny'}`
    }).join('\n'),
  ),
)

export const TABLE: readonly TableCase[] = [
  ...eachVerb,
  ...PARAMETER_CASES,
  shows(
    '1: nothing granted, nothing allowed; help always',
    [''],
    `
    read kv/a deny
    list kv/ deny
    scan kv/ deny
    update kv/a deny
    patch kv/a deny
    delete kv/a deny
    create cubbyhole/a deny
    read sys/mounts deny
    read auth/token/lookup-self deny
    help cubbyhole/a allow
    caps kv/a deny
    caps sys/mounts deny`,
  ),
  shows(
    '4: verbs on one path of an engine without create',
    [
      grant('kv/r', 'read'),
      grant('kv/u', 'update'),
      grant('kv/p', 'patch'),
      grant('kv/d', 'delete'),
      grant('kv/c', 'create'),
    ],
    `
    read kv/r allow
    update kv/r deny
    patch kv/r deny
    delete kv/r deny
    list kv/r/ deny
    scan kv/r/ deny
    update kv/u allow
    read kv/u deny
    patch kv/u deny
    delete kv/u deny
    patch kv/p allow
    update kv/p deny
    read kv/p deny
    delete kv/d allow
    update kv/d deny
    read kv/d deny
    update kv/c deny
    patch kv/c deny
    caps kv/r read
    caps kv/u update
    caps kv/p patch
    caps kv/d delete
    caps kv/c create`,
  ),
  shows(
    '1: the shorthands',
    [
      path('kv/deny', 'policy = "deny"'),
      path('kv/read', 'policy = "read"'),
      path('kv/write', 'policy = "write"'),
      path('kv/sudo', 'policy = "sudo"'),
      path('cubbyhole/write/*', 'policy = "write"'),
      path('cubbyhole/sudo/*', 'policy = "sudo"'),
    ],
    `
    read kv/deny deny
    list kv/deny/ deny
    update kv/deny deny
    read kv/read allow
    list kv/read/ allow
    scan kv/read/ deny
    update kv/read deny
    delete kv/read deny
    read kv/write allow
    list kv/write/ allow
    update kv/write allow
    delete kv/write allow
    patch kv/write deny
    scan kv/write/ deny
    create cubbyhole/write/a allow
    read kv/sudo allow {"sudo":true}
    update kv/sudo allow {"sudo":true}
    delete kv/sudo allow {"sudo":true}
    list kv/sudo/ allow {"sudo":true}
    patch kv/sudo deny
    create cubbyhole/sudo/a allow
    caps kv/deny deny
    caps kv/read list,read
    caps kv/write create,delete,list,read,update
    caps kv/sudo create,delete,list,read,sudo,update`,
  ),
  shows(
    '1: deny in a list drops the rest; no capability at all denies; sudo alone grants nothing',
    [
      grant('kv/mixed', 'read update deny list sudo'),
      grant('kv/none', ''),
      grant('kv/sudo', 'sudo'),
      grant('kv/*', 'read list update delete'),
    ],
    `
    read kv/mixed deny
    update kv/mixed deny
    list kv/mixed/ deny
    read kv/none deny
    list kv/none/ deny
    delete kv/none deny
    read kv/sudo deny
    update kv/sudo deny
    read kv/other allow
    caps kv/mixed deny
    caps kv/none deny
    caps kv/sudo sudo
    caps kv/other delete,list,read,update`,
  ),
  shows(
    '1: a leading slash is dropped, case counts, and an exact rule is exact',
    [grant('/kv/slash', 'read'), grant('kv/Case', 'read'), grant('kv/a', 'read')],
    `
    read kv/slash allow
    read kv/Case allow
    read kv/case deny
    read KV/Case deny
    read kv/a allow
    read kv/ab deny
    read kv/a/b deny
    read kv deny
    caps kv/slash read
    caps kv/case deny`,
  ),
  shows(
    '1: * at the end is any rest, also none',
    [grant('kv/app*', 'read list'), grant('kv/dir/*', 'read list')],
    `
    read kv/app allow
    read kv/apple allow
    read kv/app/x allow
    read kv/app/x/y/z allow
    list kv/app/ allow
    read kv/ap deny
    read kv/xapp deny
    read kv/dir deny
    read kv/dir/a allow
    read kv/dir/a/b allow
    list kv/dir/ allow
    list kv/dir/a/ allow
    list kv/ deny
    caps kv/dir deny
    caps kv/dir/ list,read
    caps kv/app list,read`,
  ),
  shows(
    '1: * elsewhere is a character',
    [grant('kv/*/x', 'read'), grant('kv/a*b', 'read'), grant('kv/c*d*', 'read')],
    `
    read kv/q/x deny
    read kv/*/x allow
    read kv/aXb deny
    read kv/a*b allow
    read kv/cXdY deny
    read kv/c*dY allow
    read kv/c*d allow`,
  ),
  shows(
    '1: * alone is every path',
    [grant('*', 'read list')],
    `
    read kv/a allow
    read sys/mounts allow
    read a allow
    list kv/ allow
    update kv/a deny
    delete sys/mounts/kv deny
    caps anything/at/all list,read`,
  ),
  shows(
    '1: + is one whole segment',
    [grant('kv/+/x', 'read'), grant('+/top', 'read'), grant('kv/last/+', 'read'), grant('kv/two/+/+/end', 'read')],
    `
    read kv/a/x allow
    read kv/+/x allow
    read kv/a/y deny
    read kv/a/b/x deny
    read kv/x deny
    read kv/a/x/y deny
    read any/top allow
    read kv/top allow
    read a/b/top deny
    read top deny
    read kv/last/a allow
    read kv/last/a/b deny
    read kv/last deny
    read kv/two/a/b/end allow
    read kv/two/a/end deny
    read kv/two/a/b/c/end deny
    caps kv/a/x read
    caps kv/a/b/x deny`,
  ),
  shows(
    '1: + only as a whole segment',
    [grant('kv/a+', 'read'), grant('kv/+b', 'read'), grant('kv/c+d/e', 'read'), grant('kv/f+/+', 'read')],
    `
    read kv/a+ allow
    read kv/ax deny
    read kv/a deny
    read kv/+b allow
    read kv/xb deny
    read kv/c+d/e allow
    read kv/cxd/e deny
    read kv/f+/z allow
    read kv/fx/z deny`,
  ),
  shows(
    '1: + with * at the end',
    [grant('kv/+/b*', 'read'), grant('kv/+/dir/*', 'read'), grant('+/+/deep/*', 'read')],
    `
    read kv/a/b allow
    read kv/a/bcd allow
    read kv/a/b/c/d allow
    read kv/a/xb deny
    read kv/a/x/b deny
    read kv/b deny
    read kv/a/dir deny
    read kv/a/dir/x allow
    read kv/a/dir/x/y allow
    read kv/a/c/dir/x deny
    read m/n/deep/x allow
    read m/n/deep deny`,
  ),
  shows(
    '2: one path in several policies: capabilities add up',
    [
      grant('kv/a', 'read'),
      grant('kv/a', 'update'),
      grant('kv/a', 'list'),
      grant('kv/g*', 'read'),
      grant('kv/g*', 'delete'),
      grant('kv/+/s', 'read'),
      grant('kv/+/s', 'patch'),
    ],
    `
    read kv/a allow
    update kv/a allow
    list kv/a/ allow
    delete kv/a deny
    read kv/g1 allow
    delete kv/g1 allow
    update kv/g1 deny
    read kv/x/s allow
    patch kv/x/s allow
    update kv/x/s deny
    caps kv/a list,read,update
    caps kv/g1 delete,read
    caps kv/x/s patch,read`,
  ),
  shows(
    '2: one path twice in one policy adds up too',
    [`${grant('kv/a', 'read')}\n${grant('kv/a', 'update')}\n${grant('/kv/a', 'delete')}`],
    `
    read kv/a allow
    update kv/a allow
    delete kv/a allow
    caps kv/a delete,read,update`,
  ),
  shows(
    '2: deny of one policy beats the same path in all others, in any order',
    [
      grant('kv/a', 'read update'),
      grant('kv/a', 'deny'),
      grant('kv/g*', 'deny'),
      grant('kv/g*', 'read sudo'),
      grant('kv/+/s', 'read'),
      grant('kv/+/s', 'deny'),
      grant('kv/a', 'list'),
    ],
    `
    read kv/a deny
    update kv/a deny
    list kv/a/ deny
    read kv/g1 deny
    read kv/x/s deny
    caps kv/a deny
    caps kv/g1 deny
    caps kv/x/s deny`,
  ),
  shows(
    '2: the closer rule decides alone: it may open what a wider one denies, and close what it grants',
    [
      grant('kv/*', 'deny'),
      grant('kv/open', 'read'),
      grant('kv/half/*', 'read'),
      grant('wide/*', 'read update delete list'),
      grant('wide/less', 'read'),
      grant('wide/none', 'deny'),
      grant('wide/sub/*', 'list'),
    ],
    `
    read kv/other deny
    read kv/open allow
    update kv/open deny
    read kv/half/a allow
    read kv/half deny
    read wide/a allow
    update wide/a allow
    read wide/less allow
    update wide/less deny
    delete wide/less deny
    read wide/none deny
    list wide/none/ deny
    read wide/sub/a deny
    list wide/sub/a/ allow
    read wide/sub allow
    caps wide/less read
    caps wide/none deny`,
  ),
  ...ORDER_CASES,
  shows(
    '4: a capability is none of another: scan, list, patch and recover',
    [grant('kv/l/*', 'list'), grant('kv/s/*', 'scan'), grant('kv/r/*', 'recover subscribe')],
    `
    list kv/l/ allow
    scan kv/l/ deny
    scan kv/s/ allow
    list kv/s/ deny
    read kv/l/a deny
    read kv/r/a deny
    update kv/r/a deny
    caps kv/s/a scan
    caps kv/r/a recover,subscribe`,
  ),
  shows(
    '4: create does not imply update, nor the reverse',
    [
      grant('cubbyhole/c/*', 'create'),
      grant('cubbyhole/u/*', 'update'),
      grant('cubbyhole/cu/*', 'create update'),
      grant('kv/c/*', 'create'),
    ],
    `
    create cubbyhole/c/1 allow
    create cubbyhole/u/1 deny
    create cubbyhole/cu/1 allow
    update kv/c/1 deny
    create cubbyhole/x deny`,
  ),
  shows(
    '4: sudo',
    [grant('kv/s', 'read sudo'), grant('kv/n', 'read'), grant('kv/g/*', 'sudo update'), grant('kv/g/no', 'update')],
    `
    read kv/s allow {"sudo":true}
    read kv/n allow {"sudo":false}
    update kv/g/a allow {"sudo":true}
    update kv/g/no allow {"sudo":false}
    caps kv/s read,sudo`,
  ),
  shows(
    '1: a rule counts until it expires',
    [
      grant('kv/*', 'read'),
      grant('kv/old', 'read update', 'expiration = "2001-01-01T00:00:00Z"'),
      grant('kv/new', 'update', 'expiration = "2999-01-01T00:00:00Z"'),
      grant('kv/gone', 'deny', 'expiration = "2001-01-01T00:00:00Z"'),
      grant('kv/part', 'read'),
      grant('kv/part', 'delete', 'expiration = "2001-01-01T00:00:00Z"'),
    ],
    `
    read kv/old allow
    update kv/old deny
    update kv/new allow
    read kv/new deny
    read kv/gone allow
    read kv/part allow
    delete kv/part deny`,
  ),
  shows(
    '1: the same in JSON',
    [
      '{"path":{"kv/a":{"capabilities":["read"]},"kv/b/*":{"policy":"write"},"kv/+/c":{"capabilities":["list"],"required_parameters":[]}}}',
    ],
    `
    read kv/a allow
    update kv/a deny
    update kv/b/x allow
    patch kv/b/x deny
    list kv/z/c/ allow`,
  ),
  shows(
    '1: rules about hosts beside them change nothing',
    [
      `node { policy = "write" } agent { policy = "write" } operator { policy = "write" } namespace "*" { policy = "write" } ${grant('kv/a', 'read')}`,
    ],
    `
    read kv/a allow
    update kv/a deny
    read sys/mounts deny
    caps kv/a read`,
  ),
  shows(
    '1: everyday policies of a versioned store: data and metadata are different paths',
    [
      `${grant('kv/data/app/*', 'create read update patch delete')} ${grant('kv/metadata/app/*', 'list read')} ${grant('kv/delete/app/*', 'update')} ${grant('kv/+/app/locked', 'deny')} ${grant('kv/data/app/locked', 'deny')}`,
    ],
    `
    read kv/data/app/db allow
    patch kv/data/app/db allow
    update kv/data/app/db allow
    list kv/metadata/app/ allow
    list kv/metadata/app allow
    list kv/metadata/ deny
    list kv/data/app/ deny
    update kv/delete/app/db allow
    update kv/undelete/app/db deny
    update kv/destroy/app/db deny
    read kv/data/app/locked deny
    read kv/metadata/app/locked allow
    read kv/data/other deny
    read kv/app/db deny`,
  ),
  ...TEMPLATE_CASES,
]
