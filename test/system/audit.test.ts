/** Audit devices of real processes: planted secrets, kill -9, SIGHUP, and the reports of the server. */
import assert from 'node:assert/strict'
import {
  appendFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { formatLegacyLine } from '../../src/secrets/audit/audit-chain.ts'
import { startAgent } from '../helpers/agent-process.ts'
import { assertBothLines, assertWhole, auditLinesIn } from '../helpers/audit-lines.ts'
import { eventually } from '../helpers/eventually.ts'
import { metricsOf, readinessOf } from '../helpers/exported-metrics.ts'
import { freshProcess, freshServer } from '../helpers/secrets-server.ts'

/** Before those of the rotations. */
const PLAIN_KILLS = Number(process.env['OUTPOST_AUDIT_KILLS'] ?? 1)
const PLANTED = 16
const ONE_SHARE = '-key-shares=1 -key-threshold=1'

async function auditedServer(t: TestContext) {
  const server = await freshServer(t, ONE_SHARE)
  return { ...server, ...(await audited(server)) }
}

/** With a device. */
async function audited(server: Omit<Awaited<ReturnType<typeof freshServer>>, 'agent'>) {
  const { directory, keys, run, token } = server
  const [key = ''] = keys
  assert.equal((await run(`operator unseal ${key}`)).code, 0)
  const file = join(directory, 'data/audit/audit.log')
  assert.equal((await run('secrets enable -path=kept -version=2 kv', '', token)).code, 0)
  const enabled = await run(`audit enable file file_path=${file}`, '', token)
  assert.equal(enabled.stdout, 'Success! Enabled the file audit device at: file/\n', enabled.stderr)
  return { file, key }
}

interface Asked {
  readonly url: string
}

const api = ({ url }: Asked, method: string, path: string, token: string, body?: unknown) =>
  fetch(`${url}/v1/${path}`, {
    method,
    headers: { 'X-Vault-Token': token },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  })

interface Hashed {
  readonly data: { readonly hash: string }
}

/** A secret as a password, right and wrong, as a secret ID, as what is wrapped and as private data; three of these are refused. */
async function elsewhere(agent: Asked, token: string, secret: string, at: number): Promise<Response[]> {
  const wrap = { 'X-Vault-Token': token, 'X-Vault-Wrap-TTL': '60' }
  return [
    await api(agent, 'POST', `auth/userpass/users/u${at}`, token, { password: secret }),
    await api(agent, 'POST', `auth/userpass/login/u${at}`, '', { password: secret }),
    await api(agent, 'POST', `auth/userpass/login/u${at}`, '', { password: `${secret}x` }),
    await api(agent, 'POST', 'auth/approle/role/web/custom-secret-id', token, { secret_id: secret }),
    await api(agent, 'POST', 'auth/approle/login', '', { role_id: secret, secret_id: secret }),
    await fetch(`${agent.url}/v1/sys/wrapping/wrap`, {
      method: 'POST',
      headers: wrap,
      body: JSON.stringify({ secret }),
    }),
    await api(agent, 'POST', 'sys/wrapping/unwrap', token, { token: secret }),
    await api(agent, 'POST', 'cubbyhole/own', token, { secret }),
  ]
}

test('planted secrets appear in no audit file, log or error, and are found by their HMAC', async (t) => {
  const { agent, directory, file, run, token } = await auditedServer(t)
  const second = join(directory, 'data/audit/second.log')
  const options = { file_path: second, hmac_accessor: 'false', elide_list_responses: 'true' }
  const enabled = await api(agent, 'PUT', 'sys/audit/second', token, { type: 'file', options })
  assert.equal(enabled.status, 204)
  assert.ok(statSync(`${second}.reserve`).size > 0, 'from then on a full disk does not stop reads')
  for (const type of ['userpass', 'approle']) await api(agent, 'POST', `sys/auth/${type}`, token, { type })
  await api(agent, 'POST', 'auth/approle/role/web', token, {})
  const errors: string[] = []
  const planted = Array.from({ length: PLANTED }, (_, at) => `planted-${at}-${'x'.repeat(at * 3)}`)
  for (const [at, secret] of planted.entries()) {
    const body = { data: { nested: [{ secret }], number: at } }
    const answers = [
      await api(agent, 'POST', `kept/data/${at}`, token, body),
      await api(agent, 'GET', `kept/data/${at}`, token),
      await api(agent, 'GET', `kept/data/${at}`, `s.${secret}`),
      await api(agent, 'POST', `kept/data/${at}`, token, `{"data":{"secret":"${secret}"`),
      await api(agent, 'POST', 'auth/token/create', token, { ttl: secret, policies: ['default'] }),
    ]
    // Passwords, secret IDs, wrapped data and private data: a few of each, as hashes of passwords take their time.
    if (at % 8 === 0) answers.push(...(await elsewhere(agent, token, secret, at)))
    for (const answer of answers) if (!answer.ok) errors.push(await answer.text())
  }
  assert.equal(errors.length, 3 * PLANTED + 2 * 3)
  // The last request of each round; the log is written some milliseconds later.
  const created = () => agent.stderr().split('"path":"/v1/auth/token/create"').length - 1
  await eventually(() => created() === planted.length, 'all are logged')
  const places = {
    audit: readFileSync(file, 'utf8'),
    second: readFileSync(second, 'utf8'),
    log: agent.stderr() + agent.stdout(),
    errors: errors.join('\n'),
  }
  for (const [place, text] of Object.entries(places)) {
    assert.deepEqual(
      planted.filter((secret) => text.includes(secret)),
      [],
      place,
    )
    assert.ok(!text.includes(token), place)
  }
  const files = () => readdirSync(join(directory, 'data/audit')).join()
  // The periodic probe creates the reserves.
  await eventually(() => files() === 'audit.log,audit.log.reserve,second.log,second.log.reserve', 'no other file')
  const hashOf = async (device: string, input: string) => {
    const answer = (await (await api(agent, 'PUT', `sys/audit-hash/${device}`, token, { input })).json()) as Hashed
    assert.match(answer.data.hash, /^hmac-sha256:[0-9a-f]{64}$/)
    return answer.data.hash
  }
  for (const secret of planted) {
    assert.ok(places.audit.includes(await hashOf('file', secret)), secret)
    assert.ok(places.second.includes(await hashOf('second', secret)), secret)
  }
  const { stdout } = await run('audit hash -field=hash file/ -', `${planted[0]}\n`, token)
  assert.equal(stdout.trim(), await hashOf('file', planted[0] ?? ''))
  const verified = await run(`audit verify -path=file/ ${file}`, '', token)
  assert.equal(verified.code, 0, verified.stderr)
  assert.match(verified.stdout, /^valid: lines 1 to \d+ in 1 file, verified by the server up to line \d+\n$/)
})

test('after kill -9 each answered request has its audit lines, and the chain continues', {
  timeout: 240_000,
}, async (t) => {
  const first = await freshProcess(t, ONE_SHARE)
  const { directory, run, token } = first
  const { file, key } = await audited(first)
  const answered: string[] = []
  let { agent } = first
  let next = 0
  for (let round = 0; round < PLAIN_KILLS + 2; round++) {
    const until = answered.length + 100 + 37 * round
    const writer = async () => {
      try {
        for (;;) {
          const path = `kept/data/${next++}`
          const { status } = await api(
            agent,
            next % 3 === 0 ? 'GET' : 'POST',
            path,
            token,
            next % 3 === 0 ? undefined : { data: {} },
          )
          assert.ok(status === 200 || status === 404, `${status}`)
          answered.push(path)
        }
      } catch (error) {
        if (error instanceof assert.AssertionError) throw error
      }
    }
    const writers = Promise.all(Array.from({ length: 16 }, writer))
    await eventually(() => answered.length >= until, 'requests are answered')
    if (round === PLAIN_KILLS) renameSync(file, `${file}.1`)
    if (round === PLAIN_KILLS + 1) {
      // As a rotation does it: the process goes on in a new file, under the same load, and is killed at any line of it.
      renameSync(file, `${file}.2`)
      agent.child.kill('SIGHUP')
      const more = answered.length + 20
      await eventually(() => existsSync(file) && answered.length >= more, 'the file is reopened')
    }
    agent.child.kill('SIGKILL')
    await Promise.all([agent.ended, writers])
    agent = await startAgent(t, ['-config', join(directory, 'server.hcl')])
    const unsealed = await api(agent, 'PUT', 'sys/unseal', '', { key })
    assert.equal(unsealed.status, 200)
    assert.equal((await api(agent, 'GET', 'kept/data/0', token)).status < 500, true)
    if (round < PLAIN_KILLS) await assertWhole(file)
  }
  assertBothLines(auditLinesIn(`${file}.1`, `${file}.2`, file), answered)
  // The chain continues over each kill, also over one between a rotation and the first line in the new file.
  await assertWhole(`${file}.1`, `${file}.2`, file)
  assert.ok(!agent.stderr().includes('audit file was changed by another program'))
  assert.equal((await run('audit verify', '')).code, 2)
})

test('a reload reopens the audit file; a failing device is reported by readiness and metrics, and requests are refused', async (t) => {
  const { agent, file, run, token } = await auditedServer(t)
  renameSync(file, `${file}.1`)
  writeFileSync(file, '')
  agent.reload()
  await eventually(() => agent.stderr().includes('configuration reloaded'), 'it is reloaded')
  assert.equal((await api(agent, 'POST', 'kept/data/a', token, { data: {} })).status, 200)
  assert.ok(readFileSync(file, 'utf8').includes('"kept/data/a"'))
  await assertWhole(`${file}.1`, file)
  const audit = async () => (await readinessOf(agent)).checks['audit']
  assert.deepEqual(await audit(), { state: 'ok', reason: 'audit devices record requests' })
  const [number] = [auditLinesIn(file).at(-1)?.chain.sequence ?? 0]
  appendFileSync(file, `${formatLegacyLine('{"time":"2026"}', { sequence: number + 8, hash: 'f'.repeat(64) })}\n`)
  // Requests are served and recorded; the server is not ready until an operator has looked at it.
  assert.equal((await api(agent, 'POST', 'kept/data/a', token, { data: {} })).status, 200)
  const broken = await audit()
  assert.equal(broken?.state, 'failing')
  assert.equal(
    broken.reason,
    `audit chain of file/ is broken: ${file} ended with line ${number + 9}, which another program wrote, instead of line ${number}, ` +
      'next: outpost audit verify -path=file/ FILE..., then outpost audit acknowledge file/',
  )
  assert.equal((await metricsOf(agent)).value('outpost_audit_chain_breaks_total', { device: 'file/' }), 1)
  await eventually(() => agent.stderr().includes('audit file was changed by another program'), 'it is logged')
  const verified = await run(`audit verify -path=file/ ${file}.1 ${file}`, '', token)
  assert.equal(verified.code, 1)
  assert.match(verified.stderr, /audit\.log:\d+: /)
  assert.equal((await run('audit acknowledge file', '', token)).code, 0)
  assert.deepEqual(await audit(), { state: 'ok', reason: 'audit devices record requests' })
  rmSync(file)
  writeFileSync(file, 'of something else\n')
  const refused = await api(agent, 'POST', 'kept/data/b', token, { data: {} })
  assert.equal(refused.status, 500)
  assert.match(await refused.text(), /no audit device has recorded the request: file\//)
  const snapshot = await api(agent, 'GET', 'sys/storage/raft/snapshot', token)
  assert.equal(snapshot.status, 500)
  assert.match(await snapshot.text(), /no audit device has recorded the request: file\//, 'not an internal error')
  const kept = await api(agent, 'DELETE', 'sys/audit/file', token)
  assert.equal(kept.status, 500, 'nor can it be disabled')
  assert.deepEqual(await audit(), {
    state: 'failing',
    reason:
      'requests are refused, audit device write failed: file/ has content that was not written by an audit device: use another file',
  })
  await eventually(() => agent.stderr().includes('audit device write failed'), 'the log tells')
  const value = async (name: string) => (await metricsOf(agent)).value(name, { device: 'file/' }) ?? 0
  await eventually(async () => (await value('outpost_audit_failures_total')) >= 1, 'the failure is counted')
  rmSync(file)
  // It is tried without a request, too.
  await eventually(async () => (await audit())?.state === 'ok', 'it is known to record again')
  assert.equal((await api(agent, 'GET', 'kept/data/b', token)).status, 404, 'it was not written')
  await eventually(async () => (await value('outpost_audit_lines_total')) > 5, 'lines are counted')
  await assertWhole(file)
  assert.equal((await run('audit disable file', '', token)).code, 0)
  assert.deepEqual(await audit(), { state: 'ok', reason: 'no audit device enabled' })
})

test('a failing device beside a working one is a warning, and requests are served', async (t) => {
  const { agent, run, token } = await auditedServer(t)
  const receiver = createServer((socket) => void socket.resume())
  await new Promise<void>((done) => receiver.listen(0, '127.0.0.1', done))
  const connections = new Set<Socket>()
  receiver.on('connection', (socket) => connections.add(socket))
  const address = receiver.address()
  const port = typeof address === 'object' ? address?.port : undefined
  assert.equal((await run(`audit enable socket address=127.0.0.1:${port}`, '', token)).code, 0)
  assert.deepEqual((await readinessOf(agent)).warnings, [])
  receiver.close()
  for (const socket of connections) socket.destroy()
  const warnings = await eventually(async () => {
    assert.equal((await api(agent, 'GET', 'sys/mounts', token)).status, 200)
    const found = (await readinessOf(agent)).warnings
    return found.join().includes('ECONNREFUSED') && found
  }, 'a warning')
  assert.deepEqual(warnings, ['audit device write failed: socket/ ECONNREFUSED; other devices record'])
  assert.equal((await readinessOf(agent)).status, 200)
})
