/** Which requests each command for secrets sends: those that the field's commands send, in their order. */
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { temporaryDirectory } from './outpost-process.ts'
import { recordingCore, runAt } from './recording-core.ts'

type Exchange = readonly [line: string, body?: unknown]
type Answers = Readonly<Record<string, readonly [number, unknown]>>

const SHAMIR = { initialized: true, sealed: false, t: 2, n: 3, progress: 0, type: 'shamir' }
const ATTEMPT = { started: true, nonce: 'the-nonce', progress: 0, required: 2, otp_length: 26 }
const TOKEN = { data: { id: 'a-token', accessor: 'acc', policies: ['root'], ttl: 0 } }
const AUTH = { auth: { client_token: 'new', accessor: 'acc', policies: ['default'], lease_duration: 60 } }
const NO_BODY = undefined
const NAMES = { data: { keys: ['alice'] } }
const UUID = '4469f90e-cf8a-c25d-0490-0d9cc11587ed'

const cases: [string, Exchange[], Answers?][] = [
  // Readiness is asked for besides; a server of another make answers 404 there.
  [
    'status',
    [['GET agent/ready'], ['GET sys/seal-status'], ['GET sys/leader']],
    { 'GET sys/seal-status': [200, SHAMIR] },
  ],
  ['operator init -status', [['GET sys/init']], { 'GET sys/init': [200, { initialized: true }] }],
  [
    'operator init -key-shares=3 -key-threshold=2',
    [['GET sys/seal-status'], ['PUT sys/init', { secret_shares: 3, secret_threshold: 2 }]],
    {
      'GET sys/seal-status': [200, { ...SHAMIR, initialized: false }],
      'PUT sys/init': [200, { keys: [], root_token: 'r' }],
    },
  ],
  [
    'operator init',
    [['GET sys/seal-status'], ['PUT sys/init', { recovery_shares: 5, recovery_threshold: 3 }]],
    { 'GET sys/seal-status': [200, { recovery_seal: true }], 'PUT sys/init': [200, { keys: [], root_token: 'r' }] },
  ],
  [
    'operator unseal -migrate K',
    [['PUT sys/unseal', { key: 'K', migrate: true }]],
    { 'PUT sys/unseal': [200, SHAMIR] },
  ],
  ['operator unseal -reset', [['PUT sys/unseal', { reset: true }]], { 'PUT sys/unseal': [200, SHAMIR] }],
  ['operator seal', [['PUT sys/seal']]],
  [
    'operator rotate',
    [['POST sys/rotate'], ['GET sys/key-status']],
    { 'GET sys/key-status': [200, { data: { term: 2 } }] },
  ],
  [
    'operator generate-root -init',
    [['PUT sys/generate-root/attempt', {}]],
    { 'PUT sys/generate-root/attempt': [200, ATTEMPT] },
  ],
  [
    'operator generate-root -nonce=the-nonce K',
    [['GET sys/generate-root/attempt'], ['PUT sys/generate-root/update', { key: 'K', nonce: 'the-nonce' }]],
    { 'GET sys/generate-root/attempt': [200, ATTEMPT], 'PUT sys/generate-root/update': [200, ATTEMPT] },
  ],
  [
    'operator generate-root -cancel',
    [['GET sys/generate-root/attempt'], ['DELETE sys/generate-root/attempt?nonce=n1']],
    { 'GET sys/generate-root/attempt': [200, { ...ATTEMPT, nonce: 'n1' }] },
  ],
  ['operator generate-root -cancel -nonce=n2', [['DELETE sys/generate-root/attempt?nonce=n2']]],
  [
    'operator generate-root -generate-otp',
    [['GET sys/generate-root/attempt']],
    { 'GET sys/generate-root/attempt': [200, ATTEMPT] },
  ],
  [
    'operator rekey -init -n=1 -t=1 -verify',
    [['PUT sys/rekey/init', { secret_shares: 1, secret_threshold: 1, backup: false, require_verification: true }]],
    { 'PUT sys/rekey/init': [200, ATTEMPT] },
  ],
  [
    'operator rekey -target=recovery -nonce=the-nonce K',
    [['GET sys/rekey-recovery-key/init'], ['PUT sys/rekey-recovery-key/update', { key: 'K', nonce: 'the-nonce' }]],
    { 'GET sys/rekey-recovery-key/init': [200, ATTEMPT], 'PUT sys/rekey-recovery-key/update': [200, ATTEMPT] },
  ],
  [
    'operator rekey -verify -nonce=n2 K',
    [['GET sys/rekey/verify'], ['PUT sys/rekey/verify', { key: 'K', nonce: 'n2' }]],
    { 'GET sys/rekey/verify': [200, ATTEMPT], 'PUT sys/rekey/verify': [200, { complete: true }] },
  ],
  ['operator rekey -cancel -nonce=n1', [['DELETE sys/rekey/init?nonce=n1']]],
  [
    'operator rekey -cancel -verify',
    [['GET sys/rekey/verify'], ['DELETE sys/rekey/verify?nonce=n1']],
    { 'GET sys/rekey/verify': [200, { ...ATTEMPT, nonce: 'n1' }] },
  ],
  ['read secret//x/', [['GET secret/x']], { 'GET secret/x': [200, { data: { a: 'b' } }] }],
  ['read /v1/a%b/ü', [['GET a%25b/%C3%BC']], { 'GET a%25b/%C3%BC': [200, { data: { a: 'b' } }] }],
  ['read x version=2', [['GET x?version=2']], { 'GET x?version=2': [200, { data: { a: 'b' } }] }],
  ['list secret/', [['GET secret?list=true']], { 'GET secret?list=true': [200, { data: { keys: ['a'] } }] }],
  ['write p a=b c=d=e f=', [['PUT p', { a: 'b', c: 'd=e', f: '' }]]],
  ['write p a=b a=c', [['PUT p', { a: ['b', 'c'] }]]],
  ['write -f p', [['PUT p', NO_BODY]]],
  ['delete p', [['DELETE p']]],
  ['patch p a=b', [['PATCH p', { a: 'b' }]]],
  ['token lookup', [['GET auth/token/lookup-self']], { 'GET auth/token/lookup-self': [200, TOKEN] }],
  ['token lookup t1', [['POST auth/token/lookup', { token: 't1' }]], { 'POST auth/token/lookup': [200, TOKEN] }],
  [
    'token lookup -accessor a1',
    [['POST auth/token/lookup-accessor', { accessor: 'a1' }]],
    { 'POST auth/token/lookup-accessor': [200, TOKEN] },
  ],
  [
    'token create -policy=a -policy=b,c -ttl=1h -use-limit=2 -metadata=k=v -renewable=false -display-name=n -period=2h',
    [
      [
        'POST auth/token/create',
        {
          policies: ['a', 'b', 'c'],
          ttl: '1h',
          num_uses: 2,
          meta: { k: 'v' },
          renewable: false,
          no_default_policy: false,
          display_name: 'n',
          period: '2h',
        },
      ],
    ],
    { 'POST auth/token/create': [200, AUTH] },
  ],
  [
    'token create -orphan -no-default-policy -type=batch',
    [['POST auth/token/create-orphan', { policies: [], no_default_policy: true, type: 'batch' }]],
    { 'POST auth/token/create-orphan': [200, AUTH] },
  ],
  [
    'token create -role=r1 -explicit-max-ttl=5m',
    [['POST auth/token/create/r1', { policies: [], no_default_policy: false, explicit_max_ttl: '5m' }]],
    { 'POST auth/token/create/r1': [200, AUTH] },
  ],
  ['token renew', [['PUT auth/token/renew-self', {}]], { 'PUT auth/token/renew-self': [200, AUTH] }],
  [
    'token renew -increment=1h t1',
    [['PUT auth/token/renew', { token: 't1', increment: '1h' }]],
    { 'PUT auth/token/renew': [200, AUTH] },
  ],
  [
    'token renew -accessor a1',
    [['POST auth/token/renew-accessor', { accessor: 'a1' }]],
    { 'POST auth/token/renew-accessor': [200, AUTH] },
  ],
  ['token revoke -self', [['PUT auth/token/revoke-self']]],
  ['token revoke t1', [['PUT auth/token/revoke', { token: 't1' }]]],
  ['token revoke -mode=orphan t1', [['PUT auth/token/revoke-orphan', { token: 't1' }]]],
  ['token revoke -accessor a1', [['POST auth/token/revoke-accessor', { accessor: 'a1' }]]],
  ['audit list', [['GET sys/audit']], { 'GET sys/audit': [200, { data: { 'file/': { type: 'file' } } }] }],
  [
    'audit enable -path=a -description=d -local file file_path=/a.log log_raw=true',
    [
      [
        'PUT sys/audit/a',
        { type: 'file', description: 'd', local: true, options: { file_path: '/a.log', log_raw: 'true' } },
      ],
    ],
  ],
  ['audit disable file/', [['DELETE sys/audit/file']]],
  [
    'lease lookup a/b/c',
    [['PUT sys/leases/lookup', { lease_id: 'a/b/c' }]],
    { 'PUT sys/leases/lookup': [200, { data: { id: 'a/b/c' } }] },
  ],
  [
    'lease renew -increment=1h a/b/c',
    [['PUT sys/leases/renew', { lease_id: 'a/b/c', increment: '1h' }]],
    { 'PUT sys/leases/renew': [200, { lease_id: 'a/b/c', lease_duration: 3600, renewable: true }] },
  ],
  ['lease revoke a/b/c', [['PUT sys/leases/revoke', { lease_id: 'a/b/c', sync: false }]]],
  ['lease revoke -prefix -sync a/b', [['PUT sys/leases/revoke-prefix/a/b', { sync: true }]]],
  ['lease revoke -prefix -force a/b/', [['PUT sys/leases/revoke-force/a/b']]],
  [
    'lease list a/b',
    [['GET sys/leases/lookup/a/b?list=true']],
    { 'GET sys/leases/lookup/a/b?list=true': [200, { data: { keys: ['c'] } }] },
  ],
  [
    'lease count',
    [['GET sys/leases/count?type=irrevocable']],
    { 'GET sys/leases/count?type=irrevocable': [200, { data: { lease_count: 1, counts: { 'a/': 1 } } }] },
  ],
  [
    'token capabilities p',
    [['POST sys/capabilities-self', { path: 'p' }]],
    { 'POST sys/capabilities-self': [200, { data: { capabilities: ['read'] } }] },
  ],
  [
    'token capabilities t1 p',
    [['POST sys/capabilities', { token: 't1', path: 'p' }]],
    { 'POST sys/capabilities': [200, { data: { capabilities: ['read'] } }] },
  ],
  [
    'policy list',
    [['GET sys/policies/acl?list=true']],
    { 'GET sys/policies/acl?list=true': [200, { data: { keys: ['a'] } }] },
  ],
  ['policy read A', [['GET sys/policies/acl/a']], { 'GET sys/policies/acl/a': [200, { data: { policy: 'x' } }] }],
  ['policy delete a', [['DELETE sys/policies/acl/a']]],
  ['secrets list', [['GET sys/mounts']], { 'GET sys/mounts': [200, { data: { 'x/': { type: 'kv' } } }] }],
  [
    'secrets enable -version=2 kv',
    [
      [
        'POST sys/mounts/kv',
        {
          type: 'kv',
          description: '',
          config: { options: null, default_lease_ttl: '0s', max_lease_ttl: '0s', force_no_cache: false },
          local: false,
          seal_wrap: false,
          external_entropy_access: false,
          options: { version: '2' },
        },
      ],
    ],
  ],
  ['secrets disable team/', [['DELETE sys/mounts/team']]],
  [
    'secrets tune -max-lease-ttl=2h -options=version=2 team',
    [['POST sys/mounts/team/tune', { max_lease_ttl: '2h', options: { version: '2' } }]],
  ],
  [
    'secrets tune -audit-non-hmac-request-keys=a,b -audit-non-hmac-response-keys=c team',
    [['POST sys/mounts/team/tune', { audit_non_hmac_request_keys: ['a', 'b'], audit_non_hmac_response_keys: ['c'] }]],
  ],
  [
    'secrets move a b',
    [['POST sys/remount', { from: 'a/', to: 'b/' }], ['GET sys/remount/status/m1']],
    {
      'POST sys/remount': [200, { data: { migration_id: 'm1' } }],
      'GET sys/remount/status/m1': [200, { data: { migration_info: { status: 'success' } } }],
    },
  ],
  ['auth list', [['GET sys/auth']], { 'GET sys/auth': [200, { data: {} }] }],
  ['auth disable auth/x', [['DELETE sys/auth/x']]],
  ['auth tune -description=d x', [['POST sys/mounts/auth/x/tune', { description: 'd' }]]],
  [
    'auth move a b',
    [['POST sys/remount', { from: 'auth/a/', to: 'auth/b/' }], ['GET sys/remount/status/m1']],
    {
      'POST sys/remount': [200, { migration_id: 'm1' }],
      'GET sys/remount/status/m1': [200, { data: { migration_info: { status: 'success' } } }],
    },
  ],
  ['login -no-store t1', [['GET auth/token/lookup-self']], { 'GET auth/token/lookup-self': [200, TOKEN] }],
  ['entity list', [['GET identity/entity/name?list=true']], { 'GET identity/entity/name?list=true': [200, NAMES] }],
  [
    'entity read alice',
    [['GET identity/entity/name/alice']],
    { 'GET identity/entity/name/alice': [200, { data: {} }] },
  ],
  [`entity write ${UUID} policies=a,b`, [[`PUT identity/entity/id/${UUID}`, { policies: 'a,b' }]]],
  ['group write ops policies=a', [['PUT identity/group/name/ops', { policies: 'a' }]]],
  ['group delete ops', [['DELETE identity/group/name/ops']]],
]

test('logins send the given credentials without the current token', async (t) => {
  const core = await recordingCore(t)
  const asked = async (args: readonly string[], line: string) => {
    core.asked.length = 0
    core.answers = { [line]: [200, AUTH] }
    const ran = await runAt(core, ['login', '-no-store', ...args], { OUTPOST_TOKEN: 'a-token' })
    assert.equal(ran.code, 0, ran.err)
    assert.match(ran.out, /^token +new$/m)
    const [only, ...more] = core.asked
    assert.deepEqual([only?.line, only?.headers['x-vault-token'], more], [line, undefined, []])
    return only?.body
  }
  const userpass = ['-method=userpass', 'username=alice', 'password=pw']
  assert.deepEqual(await asked(userpass, 'PUT auth/userpass/login/alice'), { password: 'pw' })
  assert.deepEqual(await asked(['-path=people', ...userpass], 'PUT auth/people/login/alice'), { password: 'pw' })
  const approle = ['-method=approle', 'role_id=r', 'secret_id=s']
  assert.deepEqual(await asked(approle, 'PUT auth/approle/login'), { role_id: 'r', secret_id: 's' })
  for (const wrong of [['-method=userpass'], ['-method=approle', 'secret_id=s'], [...userpass, 'x=y'], ['a', 'b']]) {
    assert.equal((await runAt(core, ['login', ...wrong])).code, 2, wrong.join(' '))
  }
})

test('each command sends the requests of the compatible one', async (t) => {
  const core = await recordingCore(t)
  for (const [line, expected, answers = {}] of cases) {
    core.answers = answers
    core.asked.length = 0
    const { code, err } = await runAt(core, line.split(' '))
    const exchanges = core.asked.map(({ body, line: request }) => (body === undefined ? [request] : [request, body]))
    const wanted = expected.map(([request, body]) => (body === undefined ? [request] : [request, body]))
    assert.deepEqual(exchanges, wanted, `${line}: ${err}`)
    assert.ok(code === 0, `${line}: ${err}`)
    for (const { headers } of core.asked) {
      assert.equal(headers['x-vault-request'] ?? 'true', 'true')
      assert.equal(headers['x-vault-token'], line.startsWith('login') ? 't1' : 'a-token', line)
      if (line.startsWith('patch')) assert.equal(headers['content-type'], 'application/merge-patch+json')
    }
  }
})

test('lease revoke -prefix -sync exits with 1 and the reason where leases could not be revoked', async (t) => {
  const core = await recordingCore(t)
  core.answers = { 'PUT sys/leases/revoke-prefix/a/b': [400, { errors: ['2 leases could not be revoked'] }] }
  const ran = await runAt(core, ['lease', 'revoke', '-prefix', '-sync', 'a/b'])
  assert.deepEqual([ran.code, ran.out], [1, ''])
  assert.match(ran.err, /2 leases could not be revoked/)
})

test('policies and PGP keys are sent from files', async (t) => {
  const directory = temporaryDirectory(t)
  const core = await recordingCore(t)
  const file = (name: string, content: string | Buffer) => {
    writeFileSync(join(directory, name), content)
    return join(directory, name)
  }
  await runAt(core, ['policy', 'write', 'App', file('app.hcl', 'path "x" {}\n')])
  assert.deepEqual(
    core.asked.splice(0).map(({ body, line }) => [line, body]),
    [['PUT sys/policies/acl/app', { policy: 'path "x" {}\n' }]],
  )
  const packets = Buffer.from([0x99, 1, 2, 3, 250])
  const armour = `-----BEGIN PGP PUBLIC KEY BLOCK-----\nVersion: x\n\n${packets.toString('base64')}\n=abcd\n-----END PGP PUBLIC KEY BLOCK-----\n`
  const files = [file('a.asc', armour), file('b.gpg', packets), file('c.b64', `${packets.toString('base64')}\n`)]
  core.answers = { 'GET sys/seal-status': [200, {}], 'PUT sys/init': [200, { keys: [], root_token: 'r' }] }
  const args = ['operator', 'init', '-key-shares=3', '-key-threshold=2', `-pgp-keys=${files.join(',')}`]
  await runAt(core, [...args, `-root-token-pgp-key=${files[0]}`])
  const key = packets.toString('base64')
  assert.deepEqual(core.asked.at(-1)?.body, {
    secret_shares: 3,
    secret_threshold: 2,
    pgp_keys: [key, key, key],
    root_token_pgp_key: key,
  })
  core.asked.length = 0
  for (const [wrong, message] of [
    [file('p', armour.replaceAll('PUBLIC', 'PRIVATE')), /private key/],
    [file('n', 'nothing!'), /does not contain a PGP key/],
    ['/nowhere', /cannot read the PGP key: ENOENT/],
    ['keybase:who', /keybase is not supported/],
  ] as const) {
    const { code, err } = await runAt(core, ['operator', 'init', `-pgp-keys=${wrong}`])
    assert.equal(code, 2)
    assert.match(err, message)
  }
  assert.deepEqual(core.asked, [], 'nothing was asked')
})

test('namespace, wrapping and the home directory', async (t) => {
  const directory = temporaryDirectory(t)
  const core = await recordingCore(t)
  const wrapInfo = { token: 'w', accessor: 'wa', ttl: 300, creation_time: 'now', creation_path: 'x' }
  core.answers = { 'GET x': [200, { data: null, wrap_info: wrapInfo }] }
  const wrapped = await runAt(core, ['read', '-wrap-ttl=5m', 'x'], { VAULT_NAMESPACE: 'team' })
  assert.match(wrapped.out, /^wrapping_token: +w\nwrapping_accessor: +wa\nwrapping_token_ttl: +5m\n/m)
  const { headers } = core.asked.at(-1) ?? {}
  assert.deepEqual([headers?.['x-vault-namespace'], headers?.['x-vault-wrap-ttl']], ['team', '5m'])
  assert.equal((await runAt(core, ['read', '-wrap-ttl=5m', '-field=wrapping_token', 'x'])).out, 'w')

  const home = { HOME: directory, OUTPOST_TOKEN: undefined }
  core.answers = { 'GET auth/token/lookup-self': [200, TOKEN], 'GET x': [200, { data: {} }] }
  const login = await runAt(core, ['login', 'kept-token'], home)
  assert.equal(login.code, 0)
  await runAt(core, ['read', 'x'], home)
  assert.equal(core.asked.at(-1)?.headers['x-vault-token'], 'kept-token')
  await runAt(core, ['read', 'x'], { HOME: directory, OUTPOST_TOKEN: 'of the variable' })
  assert.equal(core.asked.at(-1)?.headers['x-vault-token'], 'of the variable')
})

test('audit hash reads the value from a file, and refuses it as an argument', async (t) => {
  const file = join(temporaryDirectory(t), 'leaked')
  writeFileSync(file, 'hunter2\n')
  const core = await recordingCore(t)
  core.answers = { 'PUT sys/audit-hash/file': [200, { data: { hash: 'hmac-sha256:00' } }] }
  for (const more of [['hunter2'], ['-', 'hunter2']]) {
    const refused = await runAt(core, ['audit', 'hash', 'file/', ...more])
    assert.deepEqual([refused.code, refused.out, core.asked], [2, '', []])
    assert.match(refused.err, /value is not accepted as an argument, .*: give it on standard input \(-\) or in a file/)
    assert.doesNotMatch(refused.err, /hunter2/)
  }
  const { code, err } = await runAt(core, ['audit', 'hash', 'file/', `@${file}`])
  assert.equal(code, 0, err)
  assert.deepEqual(core.asked[0]?.body, { input: 'hunter2' })
})
