/** Roles: what is kept and shown, old parameters, and each combination that is refused. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { cloud } from '../../../src/engines/cloud/cloud.ts'
import { POLICY, storeInvalidRole } from '../../helpers/cloud-world.ts'
import { CoreWorld } from '../../helpers/core-world.ts'

const ROLE = 'arn:aws:iam::123456789012:role/path/r'
const MANAGED = 'arn:aws:iam::123456789012:policy/p'
const UNSET = {
  policy_arns: null,
  role_arns: null,
  policy_document: '',
  iam_groups: null,
  iam_tags: null,
  session_tags: null,
  external_id: '',
  default_sts_ttl: 0,
  max_sts_ttl: 0,
  user_path: '',
  permissions_boundary_arn: '',
  mfa_serial_number: '',
}
const user = { credential_type: 'iam_user', policy_document: POLICY }
const assumed = { credential_type: 'assumed_role', role_arns: ROLE }
const federation = { credential_type: 'federation_token', policy_document: POLICY }
const session = { credential_type: 'session_token' }

async function open(t: Parameters<typeof CoreWorld.open>[0]) {
  const world = await CoreWorld.open(t, { engines: [cloud] })
  await world.ask('POST', 'sys/mounts/cloud', { type: 'cloud' })
  return world
}

/** Items of the list of faults. */
const REFUSED: readonly (readonly [title: string, body: object, item: string])[] = [
  [
    '26. role_arns missing for assumed_role',
    { credential_type: 'assumed_role' },
    'must supply role_arns when credential_type is assumed_role',
  ],
  [
    'role_arns given for iam_user',
    { ...user, role_arns: ROLE },
    "cannot supply role_arns when credential_type isn't assumed_role",
  ],
  [
    'role_arns given for federation_token',
    { ...federation, role_arns: ROLE },
    "cannot supply role_arns when credential_type isn't assumed_role",
  ],
  [
    'role_arns given for session_token',
    { ...session, role_arns: ROLE },
    "cannot supply role_arns when credential_type isn't assumed_role",
  ],
  [
    'policy_arns given for session_token',
    { ...session, policy_arns: MANAGED },
    'cannot supply a policy or role when using credential_type session_token',
  ],
  [
    '35. policy_document given for session_token',
    { ...session, policy_document: POLICY },
    'cannot supply a policy or role when using credential_type session_token',
  ],
  [
    '27. no policy given for iam_user',
    { credential_type: 'iam_user' },
    'must supply at least one of policy_arns, policy_document or iam_groups when credential_type is iam_user',
  ],
  [
    'no policy given for federation_token',
    { credential_type: 'federation_token' },
    'must supply at least one of policy_arns, policy_document or iam_groups when credential_type is federation_token',
  ],
  ['31. no credential_type', { policy_arns: MANAGED }, 'did not supply credential_type'],
  ['an unknown credential_type', { credential_type: 'something' }, 'unrecognized credential type: something'],
  [
    'two credential_types',
    { credential_type: 'iam_user,assumed_role' },
    'unrecognized credential type: iam_user,assumed_role',
  ],
  [
    'default_sts_ttl for iam_user',
    { ...user, default_sts_ttl: 900 },
    'default_sts_ttl parameter only valid for assumed_role, federation_token, and session_token credential types',
  ],
  [
    'max_sts_ttl for iam_user',
    { ...user, max_sts_ttl: 900 },
    'max_sts_ttl parameter only valid for assumed_role, federation_token, and session_token credential types',
  ],
  [
    'default_sts_ttl above max_sts_ttl',
    { ...assumed, default_sts_ttl: 901, max_sts_ttl: 900 },
    '\\"default_sts_ttl\\" value must be less than or equal to \\"max_sts_ttl\\" value',
  ],
  [
    'user_path for assumed_role',
    { ...assumed, user_path: '/a/' },
    'user_path parameter only valid for iam_user credential type',
  ],
  [
    'user_path for federation_token',
    { ...federation, user_path: '/a/' },
    'user_path parameter only valid for iam_user credential type',
  ],
  [
    'user_path without its first slash',
    { ...user, user_path: 'path/' },
    'the specified value for user_path is invalid. It must match',
  ],
  [
    'user_path without its last slash',
    { ...user, user_path: '/path' },
    'the specified value for user_path is invalid. It must match',
  ],
  [
    'user_path with other letters',
    { ...user, user_path: '/ä/' },
    'the specified value for user_path is invalid. It must match',
  ],
  [
    'user_path of 511 characters',
    { ...user, user_path: `/${'a'.repeat(511)}/` },
    'the specified value for user_path is invalid. It must match',
  ],
  [
    'permissions_boundary_arn for assumed_role',
    { ...assumed, permissions_boundary_arn: MANAGED },
    "cannot supply permissions_boundary_arn when credential_type isn't iam_user",
  ],
  [
    'permissions_boundary_arn that is no ARN',
    { ...user, permissions_boundary_arn: 'x' },
    'invalid permissions_boundary_arn parameter: arn: invalid prefix',
  ],
  [
    'permissions_boundary_arn of another service',
    { ...user, permissions_boundary_arn: 'arn:aws:notiam::1:policy/p' },
    'invalid permissions_boundary_arn parameter: expected a service of iam but got notiam',
  ],
  [
    'permissions_boundary_arn of a role',
    { ...user, permissions_boundary_arn: ROLE },
    'invalid permissions_boundary_arn parameter: expected a resource type of policy but got role',
  ],
  [
    '30. policy_arns that are none',
    { ...user, policy_arns: ['not_an_arn'] },
    'invalid policy_arns parameter: not_an_arn: arn: invalid prefix',
  ],
  [
    'policy_arns of another kind',
    { ...user, policy_arns: ['arn:aws:iam::1:notpolicy/p'] },
    'expected a resource type of policy but got notpolicy',
  ],
  [
    'policy_arns, eleven of them',
    { ...user, policy_arns: Array.from({ length: 11 }, () => MANAGED) },
    'policy_arns has more than 10 ARNs',
  ],
  [
    'role_arns that are none',
    { ...assumed, role_arns: 'notarn:x' },
    'invalid role_arns parameter: notarn:x: arn: invalid prefix',
  ],
  [
    'session_tags for iam_user',
    { ...user, session_tags: { a: 'b' } },
    "cannot supply session_tags when credential_type isn't assumed_role",
  ],
  [
    'external_id for iam_user',
    { ...user, external_id: 'x' },
    "cannot supply external_id when credential_type isn't assumed_role",
  ],
  [
    'external_id that AWS does not take',
    { ...assumed, external_id: 'a b' },
    'external_id must have 2 to 1224 characters',
  ],
  ['an invalid tag', { ...user, iam_tags: { a: 'x'.repeat(257) } }, 'iam_tags has an invalid tag'],
  [
    'a policy document of many characters',
    { ...user, policy_document: JSON.stringify({ Statement: 'x'.repeat(2048) }) },
    'AWS takes at most 2048',
  ],
  ['a group that cannot be', { ...user, iam_groups: 'a b' }, 'iam_groups has an invalid name of an IAM group'],
]

test('refuses invalid combinations of role parameters', async (t) => {
  const world = await open(t)
  for (const [title, body, item] of REFUSED) {
    await t.test(title, async () => {
      const answer = await world.ask('POST', 'cloud/roles/r', body)
      assert.equal(answer.status, 400)
      const [text = ''] = answer.body.errors
      assert.match(text, /^error\(s\) validating supplied role data: "\d errors? occurred:\\n\\t\* /)
      assert.ok(text.includes(item), text)
      assert.equal((await world.ask('GET', 'cloud/roles/r')).status, 404)
    })
  }
  await t.test('reports all faults of a role at once', async () => {
    const { body } = await world.ask('POST', 'cloud/roles/r', {
      ...user,
      default_sts_ttl: 1,
      max_sts_ttl: 1,
      external_id: 'x',
    })
    assert.match(body.errors[0] ?? '', /"3 errors occurred:/)
  })
})

test('old parameters', async (t) => {
  const world = await open(t)
  const write = (body: object) => world.ask('POST', 'cloud/roles/old', body)
  const read = async () => (await world.ask('GET', 'cloud/roles/old')).body.data

  await t.test('compacts a legacy policy for users and federation tokens, with a warning', async () => {
    const answer = await write({ policy: ' {"Statement" : [ {"Sid": "a b"} ] }' })
    assert.equal(answer.status, 200)
    assert.deepEqual(answer.body.warnings, [
      'Detected use of legacy role or policy parameter. Please upgrade to use the new parameters.',
    ])
    const document = '{"Statement":[{"Sid":"a b"}]}'
    assert.deepEqual(await read(), {
      ...UNSET,
      credential_type: 'iam_user,federation_token',
      policy_document: document,
    })
  })
  await t.test('accepts the ARN of a policy as legacy parameter', async () => {
    for (const arn of [MANAGED, 'arn:aws:iam::aws:policy/ReadOnlyAccess']) {
      await write({ arn })
      assert.deepEqual(await read(), { ...UNSET, credential_type: 'iam_user', policy_arns: [arn] })
    }
  })
  await t.test('accepts the ARN of a role with a path as legacy parameter', async () => {
    await write({ arn: ROLE })
    assert.deepEqual(await read(), { ...UNSET, credential_type: 'assumed_role', role_arns: [ROLE] })
  })
  await t.test('refuses an arn of another kind and changes nothing', async () => {
    const before = await read()
    const foreign = [
      { arn: 'arn:gobbledygook' },
      { arn: 'arn:aws:iam::123456789012:user/alice' },
      { arn: 'arn:aws:iam::123456789012:role' },
      { arn: 'arn:aws:s3:::policy/x' },
      { arn: POLICY },
      { arn: '' },
      { policy: 'arn:aws:iam::123456789012:group/g' },
    ]
    for (const body of foreign) {
      const answer = await write(body)
      assert.equal(answer.status, 400, JSON.stringify(body))
      assert.match(
        answer.body.errors[0] ?? '',
        /is not accepted: it must be the ARN of a role \(arn:aws:iam::ACCOUNT:role\/NAME\) or of a policy \(arn:.*:policy\/NAME\)$/,
      )
      assert.deepEqual(await read(), before)
    }
  })
  await t.test('shows a stored role with an invalid arn with invalid_data until it is written again', async () => {
    await storeInvalidRole(world, 'old')
    assert.deepEqual(await read(), { ...UNSET, credential_type: '', invalid_data: 'arn:gobbledygook' })
    assert.match((await world.ask('GET', 'cloud/creds/old')).body.errors[0] ?? '', /unknown credential_type/)
    const answer = await write(user)
    assert.deepEqual(answer.body.warnings, ['Invalid data of "arn:gobbledygook" cleared out of role'])
    assert.deepEqual(await read(), { ...UNSET, credential_type: 'iam_user', policy_document: POLICY })
  })
  await t.test('refuses a value that is neither ARN nor JSON', async () => {
    assert.deepEqual((await write({ policy: 'x' })).body.errors, ['unable to parse supplied data: "x"'])
  })
  await t.test('both of them', async () => {
    assert.deepEqual((await write({ policy: POLICY, arn: ROLE })).body.errors, [
      'only one of policy or arn should be provided',
    ])
  })
  await t.test('mixed with credential_type', async () => {
    assert.deepEqual((await write({ arn: ROLE, credential_type: 'iam_user' })).body.errors, [
      'cannot supply deprecated role or policy parameters with an explicit credential_type',
    ])
  })
  const others: Readonly<Record<string, unknown>> = {
    role_arns: ROLE,
    policy_arns: MANAGED,
    policy_document: POLICY,
    default_sts_ttl: 900,
    max_sts_ttl: 900,
    user_path: '/',
    permissions_boundary_arn: MANAGED,
    iam_groups: 'g',
    iam_tags: { a: 'b' },
    mfa_serial_number: 'x',
    session_tags: { a: 'b' },
    external_id: 'xx',
  }
  for (const [field, value] of Object.entries(others)) {
    await t.test(`legacy parameters mixed with ${field}`, async () => {
      const text = `cannot supply deprecated role or policy parameters with ${field}`
      assert.deepEqual((await write({ arn: ROLE, [field]: value })).body.errors, [text])
    })
  }
})

test('roles as they are kept', async (t) => {
  const world = await open(t)
  const write = async (name: string, body: object) => {
    const answer = await world.ask('POST', `cloud/roles/${name}`, body)
    assert.equal(answer.status, 204, answer.text)
  }
  const read = async (name: string) => (await world.ask('GET', `cloud/roles/${name}`)).body.data

  await t.test('lists roles with and without a trailing slash, without a removed one', async () => {
    const names = Array.from({ length: 10 }, (_each, at) => `role-${at}.x@y`)
    for (const name of names) await write(name, user)
    for (const path of ['cloud/roles', 'cloud/roles/']) {
      assert.deepEqual((await world.ask('LIST', path)).body.data['keys'], names)
    }
    assert.equal((await world.ask('DELETE', 'cloud/roles/role-0.x@y')).status, 204)
    assert.equal((await world.ask('GET', 'cloud/roles/role-0.x@y')).status, 404)
    assert.equal((await world.ask('DELETE', 'cloud/roles/role-0.x@y')).status, 404)
    for (const name of names.slice(1)) await world.ask('DELETE', `cloud/roles/${name}`)
    assert.equal((await world.ask('LIST', 'cloud/roles')).status, 404)
  })
  await t.test('refuses invalid names', async () => {
    for (const name of ['-a', 'a-', 'a b', 'ä', 'a/b']) {
      assert.equal((await world.ask('POST', `cloud/roles/${name}`, user)).status, 404, name)
    }
  })
  await t.test('stores groups and tags and shows unset fields', async () => {
    await write('g', { credential_type: 'iam_user', iam_groups: ['a', 'b'], iam_tags: ['k=v', 'l=w=x'] })
    const data = { ...UNSET, credential_type: 'iam_user', iam_groups: ['a', 'b'], iam_tags: { k: 'v', l: 'w=x' } }
    assert.deepEqual(await read('g'), data)
    await write('g', { iam_groups: 'c', iam_tags: 'one=1' })
    assert.deepEqual(await read('g'), { ...data, iam_groups: ['c'], iam_tags: { one: '1' } })
  })
  await t.test('replaces session tags as a whole and keeps an external ID', async () => {
    await write('a', { ...assumed, session_tags: { a: 'b', c: 'd' }, external_id: 'ext' })
    await write('a', { session_tags: ['e=f'] })
    assert.deepEqual([(await read('a'))['session_tags'], (await read('a'))['external_id']], [{ e: 'f' }, 'ext'])
    await write('a', { session_tags: {}, external_id: '' })
    assert.deepEqual([(await read('a'))['session_tags'], (await read('a'))['external_id']], [{}, ''])
  })
  await t.test('validates paths of users', async () => {
    for (const path of ['/', '/path/', `/${'a'.repeat(510)}/`]) await write('p', { ...user, user_path: path })
  })
  await t.test('validates combinations of parameters', async () => {
    await write('ok', { ...user, policy_arns: MANAGED, permissions_boundary_arn: MANAGED })
    await write('ok2', {
      ...assumed,
      policy_arns: MANAGED,
      policy_document: POLICY,
      default_sts_ttl: '15m',
      max_sts_ttl: 3600,
    })
    await write('ok3', { ...federation, policy_arns: [MANAGED], default_sts_ttl: 900, max_sts_ttl: 900 })
    await write('ok4', { ...session, default_sts_ttl: 900, max_sts_ttl: 900, mfa_serial_number: 'x' })
  })
  await t.test('refuses a policy document that is not JSON', async () => {
    for (const document of ['{', '5', '"x"', '[]']) {
      const { body } = await world.ask('POST', 'cloud/roles/j', { ...user, policy_document: document })
      assert.match(body.errors[0] ?? '', /^cannot parse policy document: "/)
    }
  })
  await t.test('stores no role name in clear text', async () => {
    await write('planted-role-name', user)
    const paths = world.core.open.mounts.get('cloud/')?.storage.paths('') ?? []
    assert.ok(paths.length > 0 && !paths.some((each) => each.includes('planted')))
  })
})
