/** Which keys of a secret `outpost exec` makes variables and files of, and how they are named. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { filesOf, type PathSecret, variablesOf } from '../../../../src/cli/commands/exec/secret-texts.ts'
import type { VariableRules } from '../../../../src/cli/commands/exec/secret-texts.ts'

const of = (data: Record<string, unknown>, from = 'p'): PathSecret => ({ path: from, data })
const RULES: VariableRules = {
  named: new Map(),
  prefix: '',
  allowed: [],
  environment: { DB_PASSWORD: 'here', api_token: 'here' },
}
const named = (rules: Partial<VariableRules>, ...secrets: PathSecret[]) => [
  ...variablesOf(secrets, { ...RULES, ...rules }),
]

test('a key becomes a variable only if it names a credential or the command line allows it', () => {
  const refused = [
    'LD_PRELOAD LD_AUDIT PATH HOME IFS BASH_ENV BASH_FUNC_ls%% NODE_OPTIONS npm_config_script_shell PYTHONSTARTUP',
    'GIT_SSH_COMMAND EDITOR PAGER LESSOPEN JAVA_TOOL_OPTIONS JAVA_OPTS MAKEFLAGS PIP_INDEX_URL KUBECONFIG GOPROXY',
    'ANSIBLE_VAULT_PASSWORD_FILE RESTIC_PASSWORD_COMMAND GIT_CONFIG_KEY_0 LESSKEY SUDO_ASKPASS HTTPS_PROXY DATABASE_URL PORT',
    'PASSWORDS USERS MONKEY TOKENIZER SECRETARY',
  ].join(' ')
  for (const key of refused.split(' ')) {
    assert.throws(() => named({}, of({ [key]: 'x' })), /of p would set .*, which is not allowed: use -allow-env=/, key)
  }
  const fit =
    'db-user password PGUSER_PASSWORD web.token NPM_TOKEN key tls-key AWS_ACCESS_KEY_ID client-secret SSH_PASSPHRASE username'
  assert.equal(named({}, of(Object.fromEntries(fit.split(' ').map((name) => [name, 'x'])))).length, 11)
  assert.deepEqual(named({ allowed: ['DATABASE_URL', 'PG*'] }, of({ 'database-url': 'x', pghost: 'h' })), [
    ['DATABASE_URL', 'x'],
    ['PGHOST', 'h'],
  ])
  assert.throws(() => named({ allowed: ['PG*'] }, of({ apghost: 'x' })), /would set APGHOST, which is not allowed/)
  assert.throws(() => named({ allowed: ['*_HOST'] }, of({ db_hosts: 'x' })), /would set DB_HOSTS, which is not allowed/)
  // An operator may copy the remedy into a shell.
  assert.throws(() => named({}, of({ 'x;$(id)': 'x' })), /-env NAME=KEY or -env-prefix=TEXT$/)
  assert.throws(() => named({}, of({ 'db.host': 'x' })), /-env NAME=db\.host or -env-prefix=TEXT$/)
})

test('a key replaces a variable of the environment only where the command line names it', () => {
  for (const key of ['db-password', 'api_token', 'API_TOKEN']) {
    assert.throws(() => named({}, of({ [key]: 'x' })), /which is already in the environment: use -allow/)
    assert.throws(() => named({ allowed: ['*'] }, of({ [key]: 'x' })), /which is already in the environment/)
  }
  assert.deepEqual(named({ allowed: ['DB_PASSWORD'] }, of({ 'db-password': 'x' })), [['DB_PASSWORD', 'x']])
  assert.deepEqual(named({ prefix: 'db_' }, of({ password: 'x' })), [['DB_PASSWORD', 'x']])
  assert.deepEqual(named({ named: new Map([['DB_PASSWORD', 'p']]) }, of({ p: 'x' })), [['DB_PASSWORD', 'x']])
})

test('-env renames keys and omits the others', () => {
  const secrets = [of({ access_key: 'AK', secret_key: 'SK', security_token: null }), of({ host: 'h' }, 'q')]
  const aws = { AWS_ACCESS_KEY_ID: 'access_key', AWS_SECRET_ACCESS_KEY: 'secret_key' }
  const rules = { named: new Map(Object.entries(aws)) }
  assert.deepEqual(named(rules, ...secrets), [
    ['AWS_ACCESS_KEY_ID', 'AK'],
    ['AWS_SECRET_ACCESS_KEY', 'SK'],
  ])
  assert.deepEqual(named({ ...rules, allowed: ['HOST'] }, ...secrets).at(-1), ['HOST', 'h'])
  assert.throws(
    () => named({ named: new Map([['A', 'none']]) }, ...secrets),
    /option -env: no secret has the key "none"/,
  )
  assert.throws(() => named({ named: new Map([['A', 'host']]) }, of({ host: '' }), ...secrets), /p and q both have the/)
  assert.throws(
    () => named({ ...rules, allowed: ['AWS_*'] }, ...secrets, of({ aws_access_key_id: 'x' }, 'r')),
    /have the same name AWS_ACCESS_KEY_ID$/,
  )
})

test('names of variables and files', () => {
  const all = { allowed: ['*'] }
  assert.deepEqual(named(all, of({ 'a.b-c': 'x', '1st': true, ä: { b: [1] } })), [
    ['A_B_C', 'x'],
    ['_1ST', 'true'],
    ['_', '{"b":[1]}'],
  ])
  assert.deepEqual(named({ prefix: 'my-' }, of({ path: 'x' })), [['MY_PATH', 'x']])
  assert.throws(
    () => named(all, of({ 'a-b': '' }), of({ a_b: '' }, 'q')),
    /"a-b" of p and "a_b" of q have the same name A_B$/,
  )
  assert.throws(() => named(all, of({ a: 'planted\0' })), /^CommandError: the value of "a" of p contains a NUL byte/)
  assert.deepEqual([...filesOf([of({ 'tls.key': 'x\n' })])], [['tls.key', 'x\n']])
  for (const key of ['../x', '.x', 'a/b', '', 'a b'])
    assert.throws(() => filesOf([of({ [key]: 'x' })]), /cannot be a file name/)
})
