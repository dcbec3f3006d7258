/** Logic of the views of access, one-time codes, cloud and seal, without a browser. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { envLines, processJson, profileText } from '../../src/cli/commands/cloud/credential-formats.ts'
import { ApiError, SEALED, serverMessage, withoutErrorList } from '../../ui/api/client.ts'
import { memberNameProblem, memberRows } from '../../ui/views/access/auth-methods/auth-mounts.ts'
import { failureHint, failureKind } from '../../ui/components/failure-hint.ts'
import { mapLimited } from '../../ui/api/map-limited.ts'
import { listOf, segmentsOf } from '../../ui/app/path-segments.ts'
import { credentialsOf, formatCredentials } from '../../ui/views/cloud/credential-formats.ts'
import { codePeriod, groupedCode, serverOffsetMs } from '../../ui/views/totp/countdown.ts'

test('segments of a path are decoded, and one may contain a slash', () => {
  assert.deepEqual(segmentsOf('/access/auth/my%2Fmount/a%3Fb'), ['access', 'auth', 'my/mount', 'a?b'])
  assert.deepEqual(segmentsOf('/access/%E0%A4%A'), ['access', '%E0%A4%A'])
  assert.deepEqual(listOf(' a, b\nc a '), ['a', 'b', 'c'])
})

test('work for many items runs with a limit, and its results keep their order', async () => {
  let running = 0
  let most = 0
  const results = await mapLimited([5, 1, 4, 2, 3], 2, async (item) => {
    most = Math.max(most, ++running)
    await new Promise((done) => setTimeout(done, item))
    running--
    return item * 10
  })
  assert.deepEqual(results, [50, 10, 40, 20, 30])
  assert.equal(most, 2)
  assert.deepEqual(await mapLimited([], 3, () => Promise.resolve(1)), [])
})

function hint(status: number, text: string) {
  return failureHint(new ApiError(status, text))
}

test('an error of the secrets core names the view that helps', () => {
  assert.equal(hint(400, 'path disabled in replication DR secondary mode')?.link?.to, '/dr')
  assert.equal(hint(503, 'Vault is sealed')?.link?.to, '/seal')
  assert.equal(hint(503, 'replaced by "b" at https://b')?.link?.to, '/dr')
  assert.match(hint(404, 'status 404')?.text ?? '', /deleted/)
  assert.equal(hint(400, 'missing "ttl"'), undefined)
  assert.equal(failureHint(new Error('x')), undefined)
})

test('a sealed core, a missing login and a missing mount have texts of their own', () => {
  const caller = { hasToken: true, policies: ['default'] }
  const root = { hasToken: true, policies: ['root'] }
  const refusal = new ApiError(403, 'preflight capability check returned 403, please ensure …')
  assert.equal(failureKind(new ApiError(503, serverMessage('Vault is sealed')), caller), 'sealed')
  assert.equal(failureKind(new ApiError(503, serverMessage('Vault is sealed\n')), caller), 'sealed')
  assert.equal(failureKind(refusal, { hasToken: false, policies: [] }), 'login')
  assert.equal(failureKind(refusal, caller), 'refused')
  assert.equal(failureKind(refusal, root), 'missing')
  assert.equal(failureKind(new ApiError(403, 'private directory'), root), 'other')
  assert.equal(failureHint(new ApiError(503, SEALED))?.link?.to, '/seal')
})

test('a list of causes of the server is one line', () => {
  assert.equal(withoutErrorList('1 error occurred:\n\t* permission denied\n\n'), 'permission denied')
  assert.equal(withoutErrorList('failed. error: 2 errors occurred:\n\t* a\n\t* b\n\n'), 'failed. error: a; b')
  assert.equal(withoutErrorList('plain'), 'plain')
})

test('settings of a role that are not set are left out', () => {
  const rows = memberRows({
    token_ttl: 3600,
    token_policies: ['a', 'b'],
    token_period: 0,
    bind_secret_id: true,
    x: null,
  })
  assert.deepEqual(rows, [
    ['Policies', 'a, b'],
    ['Token TTL', '3600 s'],
    ['Requires a secret ID', 'yes'],
  ])
})

test('the name of a user or role that cannot be in a path is refused before the request', () => {
  assert.equal(memberNameProblem('user', 'alice', ['bob']), undefined)
  for (const name of ['', '..', 'a/b', 'a?b', '<b>', 'Bob']) assert.ok(memberNameProblem('user', name, ['bob']), name)
})

test('a code is valid until the end of its period', () => {
  assert.deepEqual(codePeriod(60_000, 30), { step: 2, secondsLeft: 30, share: 1 })
  assert.equal(codePeriod(89_001, 30).secondsLeft, 1)
  assert.equal(groupedCode('123456'), '123 456')
  assert.equal(serverOffsetMs('Sat, 28 Nov 2026 14:00:10 GMT', Date.parse('2026-11-28T14:00:00Z')), 10_000)
  assert.equal(serverOffsetMs('Sat, 28 Nov 2026 14:00:00 GMT', Date.parse('2026-11-28T14:00:00.900Z')), 0)
  assert.equal(serverOffsetMs(null, 0), 0)
})

const SESSION = {
  lease_duration: 900,
  data: { access_key: 'ASIA1', secret_key: 's/e+c', session_token: 'tok=' },
}

test('credentials have the formats of the command', () => {
  const session = credentialsOf(SESSION, Date.parse('2026-11-28T14:00:00.500Z'))
  assert.equal(session.expiration, '2026-11-28T14:15:00Z')
  const exported = envLines(session)
    .replaceAll(/^/gm, 'export ')
    .replace(/export $/, '')
  assert.equal(formatCredentials('shell', session, 'ci'), exported)
  assert.equal(formatCredentials('profile', session, 'ci'), profileText(session, 'ci'))
  assert.deepEqual(JSON.parse(formatCredentials('json', session, 'ci')), JSON.parse(processJson(session)))
})

test('credentials of a user unset the session token of others', () => {
  const user = credentialsOf(
    { lease_duration: 0, data: { access_key: 'AKIA1', secret_key: 'x', session_token: null } },
    0,
  )
  assert.match(formatCredentials('shell', user, 'ci'), /^unset AWS_SESSION_TOKEN\nexport AWS_ACCESS_KEY_ID=AKIA1\n/)
})

test('a response with shell syntax is not made into a command', () => {
  for (const secret of ['$(reboot)', 'a b', 'a;b', '`x`', "a'b", 'a\nb', '']) {
    const data = { ...SESSION.data, secret_key: secret }
    assert.throws(() => credentialsOf({ lease_duration: 1, data }, 0), /no AWS credentials/)
  }
  const { data } = SESSION
  const hostile = formatCredentials('profile', credentialsOf({ lease_duration: 1, data }, 0), 'x]\n[default')
  assert.match(hostile, /^\[default\]\n/)
})
