/** Rows of the table of policies about which of several rules decides. */
import { grant, shows } from './policies/policy-rows.ts'
import type { TableCase } from './policies/policy-rows.ts'

export const ORDER_CASES: readonly TableCase[] = [
  shows(
    '3.1: the exact rule before every wildcard',
    [
      grant('kv/a/b', 'read'),
      grant('kv/a/+', 'update'),
      grant('kv/a/b*', 'delete'),
      grant('kv/+/b', 'list'),
      grant('*', 'patch'),
    ],
    `
    read kv/a/b allow
    update kv/a/b deny
    delete kv/a/b deny
    patch kv/a/b deny
    update kv/a/c allow
    read kv/a/c deny
    delete kv/a/bb allow
    update kv/a/bb deny
    list kv/x/b/ deny
    list kv/x/b deny
    patch kv/x/b deny
    patch kv/x/y allow`,
  ),
  shows(
    '3.2: a list is judged by the exact rule without the slash, but a read is not',
    [
      grant('kv/folder', 'list read scan'),
      grant('kv/slash/', 'list read'),
      grant('kv/both', 'read'),
      grant('kv/both/', 'list'),
    ],
    `
    list kv/folder/ allow
    scan kv/folder/ allow
    list kv/folder allow
    read kv/folder allow
    read kv/folder/ deny
    list kv/slash/ allow
    list kv/slash allow
    read kv/slash deny
    read kv/slash/ allow
    list kv/both/ allow
    list kv/both allow
    read kv/both allow
    read kv/both/ deny
    caps kv/folder/ list,read,scan
    caps kv/slash/ list,read
    caps kv/slash deny
    caps kv/both/ list`,
  ),
  shows(
    '3.2: the exact rule without the slash comes before wildcards that match with it',
    [grant('kv/folder', 'read'), grant('kv/folder/*', 'list'), grant('kv/f*', 'list')],
    `
    list kv/folder/ deny
    list kv/folder/sub/ allow
    list kv/foo/ allow
    scan kv/folder/ deny`,
  ),
  shows(
    '3.4: where no wildcard matches with the slash, the path without it is asked',
    [grant('kv/+', 'list read'), grant('kv/x/+', 'list'), grant('kv/s/+', 'scan')],
    `
    list kv/a/ allow
    list kv/a allow
    list kv/ allow
    list kv/x/y/ allow
    list kv/x/y/z/ deny
    scan kv/s/y/ allow
    list kv/s/y/ deny
    read kv/a allow
    read kv/a/ deny
    read kv/a/b deny
    caps kv/a/ list,read`,
  ),
  shows(
    '3, first: the later wildcard is closer',
    [
      grant('kv/*', 'read'),
      grant('kv/a/*', 'update'),
      grant('kv/a/b/*', 'delete'),
      grant('kv/a/bc*', 'patch'),
      grant('+/a/z', 'list'),
      grant('*', 'list'),
    ],
    `
    read kv/x allow
    update kv/a/x allow
    read kv/a/x deny
    delete kv/a/b/x allow
    update kv/a/b/x deny
    update kv/a/b allow
    patch kv/a/bcd allow
    patch kv/a/bc/d allow
    update kv/a/z allow
    list kv/a/z/ deny
    list other/a/z/ allow
    list else/ allow`,
  ),
  shows(
    '3, first: a prefix beats a + that stands earlier, and the reverse',
    [grant('kv/+/c', 'read'), grant('kv/a*', 'update'), grant('kv/b/+', 'delete'), grant('kv/b*', 'patch')],
    `
    update kv/a/c allow
    read kv/a/c deny
    read kv/x/c allow
    delete kv/b/c allow
    patch kv/b/c deny
    patch kv/b/c/d allow`,
  ),
  shows(
    '3, second: at the same place, no * at the end is closer',
    [grant('kv/+/x', 'read'), grant('kv/*', 'update'), grant('kv/+/x*', 'delete'), grant('kv/+/*', 'patch')],
    `
    read kv/a/x allow
    update kv/a/x deny
    delete kv/a/x deny
    delete kv/a/xy deny
    update kv/a/xy allow
    patch kv/a/y deny
    update kv/a/y allow
    update kv/a allow
    delete kv/a/x/y deny
    update kv/a/x/y allow`,
  ),
  shows(
    '3, third: fewer + are closer',
    [
      grant('kv/+/b/c', 'read'),
      grant('kv/+/+/c', 'update'),
      grant('kv/+/+/+', 'delete'),
      grant('kv/+/longername/+', 'patch'),
    ],
    `
    read kv/a/b/c allow
    update kv/a/b/c deny
    update kv/a/x/c allow
    delete kv/a/x/y allow
    patch kv/a/longername/z allow
    delete kv/a/longername/z deny`,
  ),
  shows(
    '3, third: fewer + beat the longer text',
    [grant('kv/+/b*', 'read'), grant('kv/+/+/ccccccc*', 'update')],
    `
    read kv/a/b/ccccccc allow
    update kv/a/b/ccccccc deny
    read kv/a/b/x allow
    update kv/a/x/ccccccc allow`,
  ),
  shows(
    '3, fourth: the longer is closer',
    [grant('kv/+/a*', 'read'), grant('kv/+/ab*', 'update'), grant('kv/+/abc*', 'delete'), grant('kv/+/*', 'list')],
    `
    read kv/x/a allow
    read kv/x/ac allow
    update kv/x/ab allow
    read kv/x/ab deny
    update kv/x/abd allow
    delete kv/x/abcd allow
    update kv/x/abcd deny
    list kv/x/b/ allow`,
  ),
  shows(
    '3, fourth: the longer is closer, also with the + in another place',
    [grant('kv/+/b/+', 'read'), grant('kv/+/+/cc', 'update')],
    `
    update kv/x/b/cc allow
    read kv/x/b/cc deny
    read kv/x/b/c allow
    update kv/x/y/cc allow`,
  ),
  shows(
    '3, fifth: of equals the one that is larger as text',
    [grant('kv/+/+/b/c', 'read'), grant('kv/+/a/+/c', 'update'), grant('kv/+/a/b/+', 'delete')],
    `
    update kv/x/a/b/c deny
    read kv/x/a/b/c deny
    delete kv/x/a/b/c allow
    update kv/x/a/z/c allow
    read kv/x/z/b/c allow
    delete kv/x/a/b/z allow`,
  ),
]
