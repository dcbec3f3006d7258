/** config/root and config/lease: what is kept, what is shown, and each combination that is refused. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { attemptsOf, iamTarget, staticCredentials, stsTargets } from '../../../src/engines/cloud/aws/aws-target.ts'
import { DEFAULT_TEMPLATE, NO_ROOT } from '../../../src/engines/cloud/aws/root-record.ts'
import { isInWindow, nextRotationMs } from '../../../src/engines/cloud/root/rotation-terms.ts'
import { cloud } from '../../../src/engines/cloud/cloud.ts'
import { CoreWorld } from '../../helpers/core-world.ts'

const KEYS = { access_key: 'AKIAEXAMPLE', secret_key: 'planted-secret' }

/** What a write of nothing but a field is read back as. */
const SHOWN = {
  access_key: 'AKIAEXAMPLE',
  region: '',
  iam_endpoint: '',
  sts_endpoint: '',
  sts_region: '',
  sts_fallback_endpoints: [],
  sts_fallback_regions: [],
  max_retries: -1,
  username_template: DEFAULT_TEMPLATE,
  role_arn: '',
  identity_token_audience: '',
  identity_token_ttl: 3600,
  rotation_schedule: '',
  rotation_window: 0,
  rotation_period: 0,
  disable_automated_rotation: false,
  rotation_policy: '',
}

const REFUSED: readonly (readonly [title: string, body: object, text: string | RegExp])[] = [
  [
    'access_key together with identity_token_audience',
    { ...KEYS, identity_token_audience: 'a', role_arn: 'arn:aws:iam::1:role/r' },
    "only one of 'access_key' or 'identity_token_audience' can be set",
  ],
  ['secret_key without access_key', { secret_key: 'x' }, "'secret_key' requires 'access_key'"],
  ['access_key without secret_key', { access_key: 'x' }, "'access_key' requires 'secret_key'"],
  [
    'role_arn missing with identity_token_audience',
    { identity_token_audience: 'a' },
    "missing required 'role_arn' when 'identity_token_audience' is set",
  ],
  [
    'both rotation_period and rotation_schedule',
    { rotation_period: 60, rotation_schedule: '0 0 * * *' },
    'mutually exclusive fields rotation_schedule and rotation_period were both specified; only one of them can be provided',
  ],
  [
    'rotation_window with rotation_period',
    { rotation_period: 60, rotation_window: 3600 },
    'rotation_window does not apply to period',
  ],
  [
    'rotation_window without rotation_schedule',
    { rotation_window: 3600 },
    'cannot use rotation_window without rotation_schedule',
  ],
  [
    'rotation_window below an hour',
    { rotation_schedule: '0 0 * * *', rotation_window: 3599 },
    'error registering rotation job: rotation_window must be 3600 seconds or more',
  ],
  [
    'rotation_period below ten seconds',
    { rotation_period: 9 },
    'error registering rotation job: rotation_period must be 10 seconds or more',
  ],
  [
    'rotation_schedule of six fields',
    { rotation_schedule: '0 0 0 * * *' },
    /^failed to parse provided rotation_schedule: expected exactly 5 fields, found 6: /,
  ],
  [
    'rotation_schedule as a descriptor',
    { rotation_schedule: '@daily' },
    /^failed to parse provided rotation_schedule: expected exactly 5 fields/,
  ],
  ['rotation_schedule on day 7', { rotation_schedule: '0 0 * * 7' }, /above maximum \(6\)/],
  ['rotation_schedule on 31 February', { rotation_schedule: '0 0 31 2 *' }, /no such date/],
  [
    'rotation_schedule that is no expression',
    { rotation_schedule: 'a b c d e' },
    /^failed to parse provided rotation_schedule: /,
  ],
  [
    '4. fallback lists of different lengths',
    { sts_fallback_endpoints: 'a,b', sts_fallback_regions: 'c' },
    'fallback endpoints and fallback regions must be the same length',
  ],
  [
    'an endpoint that is no URL',
    { iam_endpoint: 'ftp://x' },
    "'iam_endpoint' is not a URL: expected https://host[:port]",
  ],
  [
    'an endpoint with a password',
    { sts_endpoint: 'https://a:b@x' },
    "'sts_endpoint' is not a URL: expected https://host[:port]",
  ],
  [
    'a template that is none',
    { username_template: '{{ nothing }}' },
    /^unable to initialize username template: unable to parse template: function "nothing" not defined/,
  ],
  ['max_retries below -1', { max_retries: -2 }, 'max_retries must be from -1 to 20'],
  ['a duration below zero', { rotation_period: -5 }, /cannot provide negative value '-5'/],
  ['a value of many characters', { region: 'x'.repeat(5000) }, 'a value can have at most 4096 characters'],
]

test('config/root', async (t) => {
  const world = await CoreWorld.open(t, { engines: [cloud] })
  await world.ask('POST', 'sys/mounts/cloud', { type: 'aws' })
  const write = (body: object) => world.ask('POST', 'cloud/config/root', body)
  const read = async () => (await world.ask('GET', 'cloud/config/root')).body.data

  for (const [title, body, text] of REFUSED) {
    await t.test(`${title}: refused, and nothing is kept`, async () => {
      const answer = await write(body)
      assert.equal(answer.status, 400)
      if (typeof text === 'string') assert.deepEqual(answer.body.errors, [text])
      else assert.match(answer.body.errors[0] ?? '', text)
      assert.equal((await world.ask('GET', 'cloud/config/root')).status, 404)
      assert.ok(!answer.text.includes('planted'))
    })
  }

  await t.test('a read has exactly the 17 keys and no secret', async () => {
    assert.equal((await write(KEYS)).status, 204)
    assert.deepEqual(await read(), SHOWN)
    assert.ok(!(await world.ask('GET', 'cloud/config/root')).text.includes('planted'))
  })

  await t.test('an update keeps fields that are not given, and max_retries 0 is 0', async () => {
    await write({ max_retries: 0, region: 'eu-west-1', nothing: 1 })
    assert.deepEqual(await read(), { ...SHOWN, max_retries: 0, region: 'eu-west-1' })
  })

  await t.test('one half of a key is not combined with the stored half', async () => {
    const before = await read()
    for (const [body, text] of [
      [{ access_key: 'AKIAOTHER' }, "'access_key' requires 'secret_key'"],
      [{ access_key: 'AKIAEXAMPLE', region: 'eu-west-2' }, "'access_key' requires 'secret_key'"],
      [{ secret_key: 'planted-other' }, "'secret_key' requires 'access_key'"],
      [{ access_key: '', secret_key: 'planted-other' }, "'secret_key' requires 'access_key'"],
    ] as const) {
      const answer = await write(body)
      assert.deepEqual([answer.status, answer.body.errors], [400, [text]])
      assert.deepEqual(await read(), before)
    }
  })

  await t.test('fallback lists as lists and as texts', async () => {
    for (const [endpoints, regions] of [
      [
        ['a.example', 'b.example'],
        ['r1', 'r2'],
      ],
      ['a.example, b.example', 'r1,r2'],
    ]) {
      await write({ sts_fallback_endpoints: endpoints, sts_fallback_regions: regions })
      const { sts_fallback_endpoints: shown, sts_fallback_regions: where } = await read()
      assert.deepEqual(
        [shown, where],
        [
          ['a.example', 'b.example'],
          ['r1', 'r2'],
        ],
      )
    }
  })

  await t.test('an empty template is the default and another one is stored as given', async () => {
    await write({ username_template: '{{ .PolicyName }}' })
    assert.equal((await read())['username_template'], '{{ .PolicyName }}')
    await write({ username_template: '' })
    assert.equal((await read())['username_template'], DEFAULT_TEMPLATE)
  })

  await t.test('validates rotation terms', async () => {
    await write({ rotation_schedule: '*/5 * * * SAT', rotation_window: '1h' })
    assert.equal((await write({ rotation_period: 60 })).status, 400)
    await write({ rotation_period: '90s', rotation_schedule: '', rotation_window: 0 })
    const { rotation_period: period, rotation_schedule: schedule, rotation_window: span } = await read()
    assert.deepEqual([period, schedule, span], [90, '', 0])
  })

  await t.test('refuses unsupported methods', async () => {
    assert.equal((await world.ask('DELETE', 'cloud/config/root')).status, 405)
    assert.equal((await world.ask('GET', 'cloud/nothing')).status, 404)
  })
})

test('config/lease validates durations', async (t) => {
  const world = await CoreWorld.open(t, { engines: [cloud] })
  await world.ask('POST', 'sys/mounts/cloud', { type: 'cloud' })
  assert.equal((await world.ask('GET', 'cloud/config/lease')).status, 404)
  const errorOf = async (body: object) => (await world.ask('POST', 'cloud/config/lease', body)).body.errors[0]
  assert.equal(await errorOf({ lease_max: '1h' }), "'lease' is a required parameter")
  assert.equal(await errorOf({ lease: '1h' }), "'lease_max' is a required parameter")
  assert.match((await errorOf({ lease: 'abc', lease_max: '1h' })) ?? '', /^Invalid lease: /)
  assert.match((await errorOf({ lease: '1h', lease_max: 'abc' })) ?? '', /^Invalid lease_max: /)
  assert.equal((await world.ask('POST', 'cloud/config/lease', { lease: '30m', lease_max: 43_200 })).status, 204)
  assert.deepEqual((await world.ask('GET', 'cloud/config/lease')).body.data, { lease: '30m0s', lease_max: '12h0m0s' })
})

function at(config: Partial<typeof NO_ROOT>, env = {}) {
  const whole = { ...NO_ROOT, ...config }
  return [iamTarget(whole, env), ...stsTargets(whole, env)]
}

test('selects the endpoints of IAM and STS', () => {
  const east = { region: 'us-east-1' }
  assert.deepEqual(at({}), [east, east])
  assert.deepEqual(at({}, { AWS_DEFAULT_REGION: 'eu-west-1' })[0], { region: 'eu-west-1' })
  assert.deepEqual(at({}, { AWS_DEFAULT_REGION: 'a', AWS_REGION: 'b' })[1], { region: 'b' })
  assert.deepEqual(at({ region: 'c' }, { AWS_REGION: 'b' })[0], { region: 'c' })
  const custom = at({
    region: 'r0',
    iamEndpoint: 'http://iam.example',
    stsEndpoint: 'sts.example',
    stsRegion: 'r1',
    stsFallbackEndpoints: ['two.example', 'http://three.example'],
    stsFallbackRegions: ['r2', 'r3'],
  })
  assert.deepEqual(custom, [
    { endpoint: 'http://iam.example', region: 'r0' },
    { endpoint: 'https://sts.example', region: 'r1' },
    { endpoint: 'https://two.example', region: 'r2' },
    { endpoint: 'http://three.example', region: 'r3' },
  ])
})

test('selects credentials in order, and the number of attempts', () => {
  const env = { AWS_ACCESS_KEY: 'a', AWS_SECRET_KEY: 'b' }
  const own = { ...NO_ROOT, accessKey: 'k', secretKey: 's' }
  assert.deepEqual(staticCredentials(own, env), { accessKeyId: 'k', secretAccessKey: 's' })
  assert.deepEqual(staticCredentials(NO_ROOT, env), { accessKeyId: 'a', secretAccessKey: 'b' })
  const both = { ...env, AWS_ACCESS_KEY_ID: 'c', AWS_SECRET_ACCESS_KEY: 'd', AWS_SESSION_TOKEN: 't' }
  assert.deepEqual(staticCredentials(NO_ROOT, both), { accessKeyId: 'c', secretAccessKey: 'd', sessionToken: 't' })
  assert.equal(staticCredentials(NO_ROOT, {}), undefined)
  assert.deepEqual([attemptsOf({ maxRetries: 0 }, {}), attemptsOf({ maxRetries: -1 }, {})], [1, 3])
  assert.equal(attemptsOf({ maxRetries: -1 }, { AWS_MAX_ATTEMPTS: '5' }), 5)
})

test('computes when a rotation is due', () => {
  const terms = { rotationSchedule: '', rotationWindowSeconds: 0, rotationPeriodSeconds: 60 }
  assert.equal(nextRotationMs(terms, 1000), 61_000)
  assert.equal(nextRotationMs({ ...terms, rotationPeriodSeconds: 0 }, 1000), undefined)
  const daily = { ...terms, rotationPeriodSeconds: 0, rotationSchedule: '30 4 * * *', rotationWindowSeconds: 3600 }
  const dueMs = nextRotationMs(daily, Date.UTC(2026, 0, 1, 5)) ?? 0
  assert.equal(new Date(dueMs).toISOString(), '2026-01-02T04:30:00.000Z')
  assert.deepEqual(
    [isInWindow(daily, dueMs, dueMs + 3_599_000), isInWindow(daily, dueMs, dueMs + 3_600_000)],
    [true, false],
  )
  assert.ok(isInWindow(terms, 0, 1e12))
})
