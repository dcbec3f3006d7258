/** Root credentials by federation: the endpoint of AWS verifies each token against the keys that the core serves. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { decodeJwt, decodeProtectedHeader } from 'jose'
import { type OidcProvider, verifiedIdentity } from '../../helpers/aws/oidc-provider.ts'
import { CloudWorld, POLICY } from '../../helpers/cloud-world.ts'

const BASE = 'https://vault.example.com'
const ISSUER = `${BASE}/v1/identity/oidc/plugins`
const AUDIENCE = 'sts.amazonaws.com'
const ROLE = 'arn:aws:iam::123456789012:role/federated'

/** Reads what the core serves to everybody. */
function provider(own: CloudWorld, audiences = [AUDIENCE]): OidcProvider {
  return {
    issuer: ISSUER,
    audiences,
    async read(url) {
      const { body, status } = await own.world.ask('GET', url.replace(`${BASE}/v1/`, ''), undefined, { token: null })
      assert.equal(status, 200)
      return body
    },
  }
}

const FEDERATED = { access_key: '', secret_key: '', role_arn: ROLE, identity_token_audience: AUDIENCE }

async function federated(t: TestContext, more: object = {}) {
  const own = await CloudWorld.open(t)
  const { account } = own.aws
  account.oidcProviders.set(ISSUER, provider(own))
  const { accessor } = (await own.good('GET', 'sys/mounts/cloud')).body.data as { accessor: string }
  const subject = `plugin-identity:root:secret:${accessor}`
  account.addRole('federated', { principals: [ISSUER], audience: AUDIENCE, subject })
  await own.good('POST', 'identity/oidc/config', { issuer: BASE })
  await own.good('POST', 'cloud/config/root', { ...FEDERATED, ...more })
  const target = account.addRole('target', { principals: [ROLE] })
  await own.good('POST', 'cloud/roles/a', { credential_type: 'assumed_role', role_arns: [target] })
  await own.userRole('u')
  return { own, subject, accessor }
}

function unreachable(): Promise<unknown> {
  return Promise.reject(new Error('unreachable'))
}

function tokens(own: CloudWorld): string[] {
  const exchanges = own.aws.journal.filter(({ action }) => action === 'AssumeRoleWithWebIdentity')
  return exchanges.map(({ form }) => form.required('WebIdentityToken'))
}

test('issues users and sessions by federation with one exchange and no access key', async (t) => {
  const { accessor, own, subject } = await federated(t)
  process.env['AWS_ACCESS_KEY_ID'] = 'AKIAOFTHEMACHINE'
  process.env['AWS_SECRET_ACCESS_KEY'] = 'planted-secret'
  t.after(() => {
    delete process.env['AWS_ACCESS_KEY_ID']
    delete process.env['AWS_SECRET_ACCESS_KEY']
  })
  const { body } = await own.good('GET', 'cloud/creds/u')
  assert.match(String(body.data['access_key']), /^AKIA/)
  const assumed = await own.good('GET', 'cloud/creds/a')
  assert.match(String(assumed.body.data['arn']), /assumed-role\/target\//)
  const [token = '', ...rest] = tokens(own)
  assert.deepEqual(rest, [])
  const [exchange] = own.aws.journal
  assert.deepEqual([exchange?.action, exchange?.keyId], ['AssumeRoleWithWebIdentity', ''])
  assert.match(exchange?.form.required('RoleSessionName') ?? '', /^vault-aws-secrets-\d{19}$/)
  assert.ok(own.aws.journal.every(({ keyId }) => keyId !== 'AKIAOFTHEMACHINE'))
  const { exp = 0, iat = 0, nbf, ...claims } = decodeJwt(token)
  assert.deepEqual([nbf, exp - iat], [iat, 3600])
  assert.deepEqual(claims, {
    iss: ISSUER,
    sub: subject,
    aud: AUDIENCE,
    'vaultproject.io': {
      namespace_id: 'root',
      namespace_path: '',
      class: 'secret',
      plugin: 'cloud',
      path: 'cloud/',
      accessor,
      local: false,
    },
  })
  const lines = JSON.stringify(own.world.lines)
  assert.ok(!lines.includes(token))
  await own.good('POST', 'sys/leases/revoke-prefix/cloud/creds')
  assert.deepEqual(own.users(), [])
})

test('replaces an expiring federated session, and starts again after a change of the root configuration', async (t) => {
  const { own } = await federated(t, { identity_token_ttl: '10m' })
  const role = own.aws.account.roles.get(ROLE)
  assert.ok(role)
  own.aws.account.roles.set(ROLE, { ...role, webSeconds: 290 })
  await own.good('GET', 'cloud/creds/a')
  own.aws.account.roles.set(ROLE, role)
  // Tokens of one second are alike.
  own.pass(1)
  const before = tokens(own).length
  await own.good('GET', 'cloud/creds/a')
  await own.good('GET', 'cloud/creds/a')
  const [last = '', ...others] = tokens(own).toReversed()
  assert.equal(others.length, before)
  assert.ok(!others.includes(last))
  const { exp = 0, iat = 0 } = decodeJwt(last)
  assert.equal(exp - iat, 600)
  await own.good('POST', 'cloud/config/root', { region: 'eu-west-1' })
  await own.good('GET', 'cloud/creds/a')
  assert.equal(tokens(own).length, before + 2)
})

test('adds a hint to refusals of AWS', async (t) => {
  const { own } = await federated(t)
  const { aws } = own
  const errorOf = async () => {
    // Each attempt begins with a new exchange.
    const answer = await own.ask('GET', 'cloud/creds/a')
    return `${answer.status} ${answer.body.errors?.[0]}`
  }
  await t.test('another audience', async () => {
    aws.account.oidcProviders.set(ISSUER, provider(own, ['another']))
    assert.match(
      await errorOf(),
      /^400 .*InvalidIdentityToken: federation as .*: Incorrect token audience .*this audience/,
    )
  })
  await t.test('no provider for the issuer', async () => {
    aws.account.oidcProviders.clear()
    assert.match(await errorOf(), new RegExp(`^400 .*InvalidIdentityToken.*AWS needs an OIDC provider for ${ISSUER}`))
  })
  await t.test('keys that AWS cannot read', async () => {
    aws.account.oidcProviders.set(ISSUER, { ...provider(own), read: unreachable })
    assert.match(await errorOf(), /^400 .*IDPCommunicationError.*openid-configuration/)
  })
  aws.account.oidcProviders.set(ISSUER, provider(own))
  await t.test('a role that does not trust the issuer', async () => {
    const role = aws.account.roles.get(ROLE)
    aws.account.addRole('federated', { principals: ['https://another.example.com'] })
    assert.match(await errorOf(), /^400 .*AccessDenied.*must allow sts:AssumeRoleWithWebIdentity to https:\/\/vault/)
    if (role) aws.account.roles.set(ROLE, role)
  })
  await t.test('the subject of another mount', async () => {
    await own.good('POST', 'sys/mounts/other', { type: 'cloud' })
    const settings = { iam_endpoint: aws.url, sts_endpoint: aws.url, max_retries: 0, region: 'us-east-1' }
    await own.good('POST', 'other/config/root', { ...settings, ...FEDERATED })
    await own.good('POST', 'other/roles/u', { credential_type: 'iam_user', policy_document: POLICY })
    const answer = await own.ask('GET', 'other/creds/u')
    assert.match(answer.body.errors[0] ?? '', /AccessDenied: federation as/)
  })
  await t.test('a token that has expired by the clock of AWS', async () => {
    aws.nowMs = () => own.world.nowMs + 7_200_000
    assert.match(await errorOf(), /^400 .*ExpiredToken.*clock differs from that of AWS/)
    aws.nowMs = () => own.world.nowMs
  })
  assert.match(await errorOf(), /^200 /)
  assert.deepEqual(own.users(), [])
})

test('skips an STS endpoint that does not respond', async (t) => {
  const fallback = { sts_endpoint: 'http://127.0.0.1:9', sts_fallback_regions: ['us-east-1'] }
  const { own } = await federated(t)
  await own.good('POST', 'cloud/config/root', { ...fallback, sts_fallback_endpoints: [own.aws.url] })
  await own.good('GET', 'cloud/creds/a')
  assert.equal(tokens(own).length, 1)
})

test('an invalid federation configuration changes nothing', async (t) => {
  const own = await CloudWorld.open(t)
  const before = (await own.good('GET', 'cloud/config/root')).body.data
  const refused = async (body: object) => {
    const answer = await own.ask('POST', 'cloud/config/root', body)
    assert.deepEqual((await own.good('GET', 'cloud/config/root')).body.data, before)
    return `${answer.status} ${answer.body.errors[0]}`
  }
  assert.match(await refused(FEDERATED), /^400 identity tokens need an issuer: write .* identity\/oidc\/config$/)
  await own.good('POST', 'identity/oidc/config', { issuer: 'http://127.0.0.1:8200' })
  assert.match(
    await refused({ ...FEDERATED, role_arn: 'arn:aws:iam::1:user/u' }),
    /^400 'role_arn' is not the ARN of a role/,
  )
  assert.match(
    await refused({ ...FEDERATED, identity_token_ttl: '25h' }),
    /^400 the TTL of an identity token can be at most 24h/,
  )
  const warned = await own.good('POST', 'cloud/config/root', FEDERATED)
  assert.match(
    warned.body.warnings?.[0] ?? '',
    /^AWS reads the keys of an issuer by HTTPS, and cannot read those of http:/,
  )
  const { data } = (await own.good('GET', 'cloud/config/root')).body
  assert.deepEqual([data['identity_token_audience'], data['role_arn'], data['access_key']], [AUDIENCE, ROLE, ''])
  const rotation = await own.ask('POST', 'cloud/config/rotate-root')
  assert.equal(rotation.status, 400)
})

test('creates issuer keys once, publishes the next one early and old ones for a day', async (t) => {
  const { own } = await federated(t)
  const { world } = own
  const shown = async () => {
    const { body } = await world.ask('GET', 'identity/oidc/plugins/.well-known/keys', undefined, { token: null })
    const keys = body['keys'] as { kid: string; d?: string }[]
    assert.ok(keys.every((key) => Object.keys(key).sort().join() === 'alg,e,kid,kty,n,use'))
    return keys.map(({ kid }) => kid)
  }
  const issued = async () => {
    await own.good('POST', 'cloud/config/root', { region: `r${world.nowMs}` })
    await own.good('GET', 'cloud/creds/a')
    const token = tokens(own).at(-1) ?? ''
    return { token, kid: decodeProtectedHeader(token).kid }
  }
  const isGood = (token: string, atMs: number) =>
    verifiedIdentity(token, own.aws.account.oidcProviders, atMs).then(
      () => true,
      () => false,
    )
  const first = await issued()
  const madeAtMs = world.nowMs
  const [signing, next] = await shown()
  assert.equal(first.kid, signing)
  own.pass(86_400)
  const second = await issued()
  assert.equal(second.kid, next)
  assert.deepEqual((await shown()).slice(0, 1).concat((await shown()).slice(2)), [next, signing])
  assert.ok(await isGood(first.token, madeAtMs))
  own.pass(86_400)
  assert.ok(!(await isGood(first.token, madeAtMs)), 'its key is no longer published')
  assert.ok(await isGood(second.token, world.nowMs - 86_400_000))

  const earlier = await issued()
  await own.good('POST', 'identity/oidc/key/default/rotate', { verification_ttl: 3600 })
  const third = await issued()
  assert.ok(await isGood(earlier.token, world.nowMs))
  await own.good('POST', 'identity/oidc/key/default/rotate', { verification_ttl: 0 })
  assert.ok(!(await isGood(third.token, world.nowMs)), 'it was ended at once')
  assert.ok(!(await isGood(earlier.token, world.nowMs)), 'and so was one of the key before')
  assert.equal((await world.ask('POST', 'identity/oidc/key/default/rotate', { verification_ttl: '48h' })).status, 400)

  const kept = await shown()
  const { oidc } = world.core.open
  await world.core.seal()
  for (const name of ['openid-configuration', 'keys']) {
    const sealed = await world.ask('GET', `identity/oidc/plugins/.well-known/${name}`, undefined, { token: null })
    assert.equal(sealed.status, 503)
  }
  await assert.rejects(oidc.keys.signing(), /sealed/i)
  assert.throws(() => oidc.keys.publicKeys(), /sealed/i)
  world.unseal()
  assert.deepEqual(await shown(), kept)
  await issued()
})

test('serves OIDC documents without a token and settings by policy', async (t) => {
  const own = await CloudWorld.open(t)
  const ask = (path: string) => own.world.ask('GET', `identity/oidc/${path}`, undefined, { token: null })
  assert.equal((await ask('plugins/.well-known/openid-configuration')).status, 400)
  const none = await ask('plugins/.well-known/keys')
  assert.deepEqual([none.text.trim(), none.headers['cache-control']], ['{"keys":[]}', 'no-store'])
  for (const issuer of [
    'vault.example.com',
    'ftp://a',
    'https://a/b',
    'https://a/',
    'https://u:p@a',
    'https://a?b',
    7,
  ]) {
    const answer = await own.ask('POST', 'identity/oidc/config', { issuer })
    assert.equal(answer.status, 400, String(issuer))
    assert.match(answer.body.errors[0] ?? '', /^invalid issuer, which must include only/)
  }
  assert.deepEqual((await own.good('GET', 'identity/oidc/config')).body.data, { issuer: '' })
  const set = await own.good('POST', 'identity/oidc/config', { issuer: BASE })
  assert.match(set.body.warnings?.[0] ?? '', /^If "issuer" is set explicitly/)
  assert.deepEqual(JSON.parse((await ask('plugins/.well-known/openid-configuration')).text), {
    issuer: ISSUER,
    jwks_uri: `${ISSUER}/.well-known/keys`,
    response_types_supported: ['id_token'],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: ['RS256'],
  })
  const key = (await own.good('GET', 'identity/oidc/key/default')).body.data
  assert.deepEqual([key['algorithm'], key['rotation_period']], ['RS256', 86_400])
  for (const path of ['config', 'key/default']) assert.equal((await ask(path)).status, 403)
  const rotation = await own.world.ask('POST', 'identity/oidc/key/default/rotate', {}, { token: null })
  assert.equal(rotation.status, 403)
  assert.equal((await own.ask('POST', 'identity/oidc/config', { issuer: '' })).status, 204)
})

test('many concurrent first tokens create one key pair', async (t) => {
  const own = await CloudWorld.open(t)
  const { keys } = own.world.core.open.oidc
  const ids = await Promise.all(Array.from({ length: 8 }, async () => (await keys.signing()).id))
  assert.equal(new Set(ids).size, 1)
  const [a, b] = await Promise.all([keys.rotate(3600), keys.rotate(3600)])
  assert.deepEqual([a, b], [undefined, undefined])
  const shown = keys.publicKeys().map(({ kid }) => kid)
  assert.equal(new Set(shown).size, shown.length)
  assert.equal(shown.length, 4)
})
