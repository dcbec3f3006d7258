/** `outpost quota`, `lease tidy`, `cloud root rotate` and `cloud orphans`: requests, output, confirmation, exit codes. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import tty from 'node:tty'
import { runHere } from '../helpers/command-here.ts'
import { recordingCore, runAt } from './recording-core.ts'

test('quota commands send the requests of sys/quotas/rate-limit', async (t) => {
  const core = await recordingCore(t)
  const RULE = { data: { name: 'q', path: 'secret/', rate: 5, interval: 1 } }
  core.answers = {
    'GET sys/quotas/rate-limit?list=true': [200, { data: { keys: ['q', 'r'] } }],
    'GET sys/quotas/rate-limit/q': [200, RULE],
    'GET sys/quotas/rate-limit/none': [404, { errors: [] }],
  }
  assert.deepEqual(await runAt(core, ['quota', 'list', '-json']), { code: 0, out: '[\n  "q",\n  "r"\n]\n', err: '' })
  assert.match((await runAt(core, ['quota', 'list'])).out, /^Keys\n----\nq\nr\n$/)
  assert.match((await runAt(core, ['quota', 'read', 'q'])).out, /^rate +5$/m)
  assert.equal((await runAt(core, ['quota', 'read', '-field=rate', 'q'])).out, '5')
  const none = await runAt(core, ['quota', 'read', 'none'])
  assert.deepEqual(none, { code: 1, out: '', err: 'outpost: no quota "none", check "outpost quota list"\n' })
  assert.equal((await runAt(core, ['quota', 'write', 'q', 'rate=5', 'path=secret/'])).out, 'Success! Wrote quota: q\n')
  assert.deepEqual(core.asked.at(-1)?.line, 'PUT sys/quotas/rate-limit/q')
  assert.deepEqual(core.asked.at(-1)?.body, { rate: '5', path: 'secret/' })
  assert.equal((await runAt(core, ['quota', 'delete', 'q'])).code, 0)
  assert.equal(core.asked.at(-1)?.line, 'DELETE sys/quotas/rate-limit/q')
  const sent = core.asked.length
  for (const [args, text] of [
    [['write', 'q'], 'missing KEY=VALUE'],
    [['write', 'q', 'rate'], 'is not KEY=VALUE'],
    [['write', 'a/b', 'rate=1'], '"/" is not allowed'],
    [['delete', '..'], '"." and ".." are not allowed'],
    [['read'], 'missing NAME'],
  ] as const) {
    const { code, err } = await runAt(core, ['quota', ...args])
    assert.equal(code, 2, err)
    assert.ok(err.includes(text), err)
  }
  assert.equal(core.asked.length, sent, 'nothing was sent')
})

test('no quotas', async (t) => {
  const core = await recordingCore(t)
  core.answers = { 'GET sys/quotas/rate-limit?list=true': [404, { errors: [] }] }
  assert.deepEqual(await runAt(core, ['quota', 'list']), { code: 0, out: 'No quotas\n', err: '' })
  assert.equal((await runAt(core, ['quota', 'list', '-json'])).out, '[]\n')
})

test('lease tidy starts a round and prints the warning of the server', async (t) => {
  const core = await recordingCore(t)
  core.answers = { 'POST sys/leases/tidy': [202, { data: null, warnings: ['started'] }] }
  const ran = await runAt(core, ['lease', 'tidy'])
  assert.deepEqual(ran, {
    code: 0,
    out: 'Success! Started the revocation of expired leases\n',
    err: 'warning: started\n',
  })
})

const ORPHANS = {
  data: {
    orphans: [
      { username: 'u1', created_time: '2026-11-21T10:00:00Z' },
      { username: 'u2', created_time: '2026-11-21T11:00:00Z' },
    ],
    elsewhere: [{ username: 'x', account: '111' }],
  },
}

test('cloud orphans lists, and deletes what was listed', async (t) => {
  const core = await recordingCore(t)
  core.answers = {
    'GET cloud/orphans': [200, ORPHANS],
    'GET aws-eu/orphans': [200, { data: { orphans: [] } }],
    'POST cloud/orphans': [200, { data: { removed: ['u1'], failed: { u2: 'AccessDenied: no' } } }],
  }
  const listed = await runAt(core, ['cloud', 'orphans'])
  assert.equal(listed.code, 0)
  assert.match(listed.out, /^User +Created\n-+ +-+\nu1 +2026-11-21T10:00:00Z\nu2 +2026-11-21T11:00:00Z\n$/)
  assert.match(listed.err, /^warning: user x of account 111 was not completed/)
  assert.deepEqual(JSON.parse((await runAt(core, ['cloud', 'orphans', '-json'])).out), ORPHANS.data)
  assert.equal((await runAt(core, ['cloud', 'orphans', '-mount', 'aws-eu'])).out, 'No orphans\n')
  assert.equal((await runAt(core, ['cloud', 'orphans', '-mount', 'aws-eu', '-delete'])).out, 'No orphans\n')
  const unknown = await runAt(core, ['cloud', 'orphans', '-delete', 'u1', 'u9'])
  assert.deepEqual(unknown, { code: 1, out: '', err: 'outpost: not an orphan of cloud: "u9", nothing was deleted\n' })
  assert.ok(core.asked.every(({ line }) => line.startsWith('GET ')))
  const wrong = await runAt(core, ['cloud', 'orphans', 'u1'])
  assert.deepEqual([wrong.code, wrong.out], [2, ''])
  const all = await runAt(core, ['cloud', 'orphans', '-delete'])
  assert.deepEqual(all, { code: 1, out: 'Deleted u1\n', err: 'cannot delete u2: AccessDenied: no\n' })
  assert.deepEqual(core.asked.at(-1)?.body, { remove: true, usernames: ['u1', 'u2'] })
  await runAt(core, ['cloud', 'orphans', '-delete', 'u2'])
  assert.deepEqual(core.asked.at(-1)?.body, { remove: true, usernames: ['u2'] })
})

test('cloud root rotate and deleting orphans change nothing on a terminal without a yes', async (t) => {
  const core = await recordingCore(t)
  core.answers = {
    'GET cloud/orphans': [200, ORPHANS],
    'POST cloud/config/rotate-root': [200, { data: { access_key: 'AKIANEW' } }],
    'POST cloud/orphans': [200, { data: { removed: ['u1', 'u2'], failed: {} } }],
    'GET sys/health?sealedcode=200&uninitcode=200&drsecondarycode=200&standbycode=200': [
      200,
      { cluster_name: 'prod', cluster_id: 'c1' },
    ],
  }
  t.mock.method(tty, 'isatty', (descriptor: number) => descriptor !== 1)
  const run = (args: string[], typed: string) => runHere(args, { OUTPOST_ADDR: core.url }, typed)
  for (const args of [
    ['cloud', 'root', 'rotate'],
    ['cloud', 'orphans', '-delete'],
  ]) {
    const refused = await run(args, 'no\n')
    assert.deepEqual([refused.code, refused.stdout], [1, ''], refused.stderr)
    assert.match(refused.stderr, /^Cluster: prod \(c1\) at /m)
  }
  assert.ok(core.asked.every(({ line }) => line.startsWith('GET ')))
  assert.match((await run(['cloud', 'root', 'rotate'], 'yes\n')).stdout, /^access_key +AKIANEW$/m)
  assert.equal((await run(['cloud', 'orphans', '-delete', '-yes'], '')).stdout, 'Deleted u1\nDeleted u2\n')
})
