/** Which requests the `kv` commands send: the question about the mount first, then those that the field's commands send. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { recordingCore, runAt } from './recording-core.ts'

type Exchange = readonly [line: string, body?: unknown]
type Answers = Readonly<Record<string, readonly [number, unknown]>>

const mount = (path: string, version: string | undefined) =>
  [200, { data: { path, type: 'kv', options: version === undefined ? null : { version } } }] as const
const version = (number: number, more: object = {}) => ({
  created_time: '2026-11-21T10:00:00Z',
  custom_metadata: null,
  deletion_time: '',
  destroyed: false,
  version: number,
  ...more,
})
const read = (data: unknown, metadata: object) => ({ data: { data, metadata } })
const ASK = 'GET sys/internal/ui/mounts/s/a'
const ASK_MOUNT = 'GET sys/internal/ui/mounts/s'
const V2: Answers = {
  [ASK]: mount('s/', '2'),
  [ASK_MOUNT]: mount('s/', '2'),
  'GET sys/internal/ui/mounts/team/s/a': mount('team/s/', '2'),
}
const V1: Answers = { [ASK]: mount('s/', '1'), 'GET sys/internal/ui/mounts/old/b': mount('old/', undefined) }
const WRITTEN = [200, { data: version(1) }] as const

const cases: [string, Exchange[], Answers][] = [
  ['kv put s/a k=v', [[ASK], ['PUT s/data/a', { data: { k: 'v' }, options: {} }]], { ...V2, 'PUT s/data/a': WRITTEN }],
  [
    'kv put -cas=0 -mount=s a k=v',
    [[ASK_MOUNT], ['PUT s/data/a', { data: { k: 'v' }, options: { cas: 0 } }]],
    { ...V2, 'PUT s/data/a': WRITTEN },
  ],
  [
    'kv put team/s/a k=v',
    [['GET sys/internal/ui/mounts/team/s/a'], ['PUT team/s/data/a', { data: { k: 'v' }, options: {} }]],
    { ...V2, 'PUT team/s/data/a': WRITTEN },
  ],
  ['kv put s/a k=v', [[ASK], ['PUT s/a', { k: 'v' }]], V1],
  ['kv get s/a', [[ASK], ['GET s/data/a']], { ...V2, 'GET s/data/a': [200, read({ k: 'v' }, version(1))] }],
  [
    'kv get -version=2 -wrap-ttl=5m s/a',
    [[ASK], ['GET s/data/a?version=2']],
    { ...V2, 'GET s/data/a?version=2': [200, { data: null, wrap_info: { token: 't' } }] },
  ],
  ['kv get s/a', [[ASK], ['GET s/a']], { ...V1, 'GET s/a': [200, { data: { k: 'v' } }] }],
  [
    'kv get old/b',
    [['GET sys/internal/ui/mounts/old/b'], ['GET old/b']],
    { ...V1, 'GET old/b': [200, { data: { k: 'v' } }] },
  ],
  // Of a deleted version there is something to tell, and that is no error.
  [
    'kv get s/a',
    [[ASK], ['GET s/data/a']],
    { ...V2, 'GET s/data/a': [404, read(null, version(1, { deletion_time: 'x' }))] },
  ],
  [
    'kv patch -cas=3 -remove-data=old s/a k=v',
    [[ASK], ['PATCH s/data/a', { data: { k: 'v', old: null }, options: { cas: 3 } }]],
    { ...V2, 'PATCH s/data/a': WRITTEN },
  ],
  [
    'kv patch -method=rw -remove-data=old s/a k=v',
    [[ASK], ['GET s/data/a'], ['PUT s/data/a', { data: { kept: 1, k: 'v' }, options: { cas: 4 } }]],
    { ...V2, 'GET s/data/a': [200, read({ kept: 1, old: 2, k: 'u' }, version(4))], 'PUT s/data/a': WRITTEN },
  ],
  [
    'kv patch s/a k=v',
    [
      [ASK],
      ['PATCH s/data/a', { data: { k: 'v' }, options: {} }],
      ['GET s/data/a'],
      ['PUT s/data/a', { data: { x: 1, k: 'v' }, options: { cas: 4 } }],
    ],
    {
      ...V2,
      'PATCH s/data/a': [403, { errors: ['permission denied'] }],
      'GET s/data/a': [200, read({ x: 1 }, version(4))],
      'PUT s/data/a': WRITTEN,
    },
  ],
  ['kv delete s/a', [[ASK], ['DELETE s/data/a']], V2],
  ['kv delete s/a', [[ASK], ['DELETE s/a']], V1],
  ['kv delete -versions=1,2 s/a', [[ASK], ['PUT s/delete/a', { versions: ['1', '2'] }]], V2],
  ['kv undelete -versions=1 -versions=3 s/a', [[ASK], ['PUT s/undelete/a', { versions: ['1', '3'] }]], V2],
  ['kv destroy -versions=2 s/a', [[ASK], ['PUT s/destroy/a', { versions: ['2'] }]], V2],
  [
    'kv list s/a',
    [[ASK], ['GET s/metadata/a?list=true']],
    { ...V2, 'GET s/metadata/a?list=true': [200, { data: { keys: ['x'] } }] },
  ],
  [
    'kv list -mount=s',
    [[ASK_MOUNT], ['GET s/metadata?list=true']],
    { ...V2, 'GET s/metadata?list=true': [200, { data: { keys: ['x'] } }] },
  ],
  ['kv list s/a', [[ASK], ['GET s/a?list=true']], { ...V1, 'GET s/a?list=true': [200, { data: { keys: ['x'] } }] }],
  [
    'kv rollback -version=2 s/a',
    [
      [ASK],
      ['GET s/data/a'],
      ['GET s/data/a?version=2'],
      ['PUT s/data/a', { data: { k: 'two' }, options: { cas: 5 } }],
    ],
    {
      ...V2,
      'GET s/data/a': [200, read({ k: 'five' }, version(5))],
      'GET s/data/a?version=2': [200, read({ k: 'two' }, version(2))],
      'PUT s/data/a': WRITTEN,
    },
  ],
  [
    'kv metadata get s/a',
    [[ASK], ['GET s/metadata/a']],
    { ...V2, 'GET s/metadata/a': [200, { data: { versions: {} } }] },
  ],
  [
    'kv metadata put -max-versions=3 -cas-required -delete-version-after=1h -custom-metadata=k=v=w s/a',
    [
      [ASK],
      [
        'PUT s/metadata/a',
        { max_versions: 3, cas_required: true, delete_version_after: '1h', custom_metadata: { k: 'v=w' } },
      ],
    ],
    V2,
  ],
  ['kv metadata put s/a', [[ASK], ['PUT s/metadata/a', {}]], V2],
  [
    'kv metadata patch -cas-required=false -remove-custom-metadata=k s/a',
    [[ASK], ['PATCH s/metadata/a', { cas_required: false, custom_metadata: { k: null } }]],
    V2,
  ],
  ['kv metadata delete s/a', [[ASK], ['DELETE s/metadata/a']], V2],
  [
    'kv diff -from=1 -to=2 s/a',
    [[ASK], ['GET s/diff/a?from=1&to=2']],
    { ...V2, 'GET s/diff/a?from=1&to=2': [200, { data: { from: 1, to: 2, changes: [] } }] },
  ],
  [
    'kv copy s/a s/b',
    [[ASK], ['POST s/copy/a', { to: 'b' }]],
    { ...V2, 'POST s/copy/a': [200, { data: { path: 'b' } }] },
  ],
  [
    'kv move -mount=s a b/c',
    [[ASK_MOUNT], ['POST s/move/a', { to: 'b/c' }]],
    { ...V2, 'POST s/move/a': [200, { data: { path: 'b/c' } }] },
  ],
  [
    'kv search -name=x -custom-metadata=a=1 -custom-metadata=b=2 s/a',
    [[ASK], ['GET s/search/a?name=x&custom_metadata=a%3D1&custom_metadata=b%3D2']],
    {
      ...V2,
      'GET s/search/a?name=x&custom_metadata=a%3D1&custom_metadata=b%3D2': [200, { data: { found: [], next: null } }],
    },
  ],
  ['kv enable-versioning s/', [['POST sys/mounts/s/tune', { options: { version: '2' } }]], V2],
]

test('each kv command sends the requests of the compatible one', async (t) => {
  const core = await recordingCore(t)
  for (const [line, expected, answers] of cases) {
    core.answers = answers
    core.asked.length = 0
    const { code, err } = await runAt(core, line.split(' '))
    const exchanges = core.asked.map(({ body, line: request }) => (body === undefined ? [request] : [request, body]))
    assert.deepEqual(exchanges, expected, `${line}: ${err}`)
    assert.ok(code === 0, `${line}: ${err}`)
    for (const { headers, line: request } of core.asked) {
      if (request.startsWith('PATCH')) assert.equal(headers['content-type'], 'application/merge-patch+json')
      if (request === ASK)
        assert.equal(headers['x-vault-wrap-ttl'], undefined, 'what is asked about the mount is for us')
    }
  }
})

test('a request that cannot be carried out is one line of error and writes nothing', async (t) => {
  const core = await recordingCore(t)
  const deleted = version(2, { deletion_time: '2099-01-01T00:00:00Z' })
  const rows: [string, number, RegExp, Answers?][] = [
    ['kv get s/a', 1, /no value found at s\/data\/a\n$/, { ...V2, 'GET s/data/a': [404, { errors: [] }] }],
    [
      'kv get -version=9 s/a',
      1,
      /no value found at s\/data\/a with version 9\n$/,
      { ...V2, 'GET s/data/a?version=9': [404, { errors: [] }] },
    ],
    ['kv get -field=k s/a', 1, /no data found at s\/data\/a/, { ...V2, 'GET s/data/a': [404, read(null, deleted)] }],
    ['kv get -field=n s/a', 1, /has no field "n"/, { ...V2, 'GET s/data/a': [200, read({ k: 1 }, version(1))] }],
    ['kv get s', 2, /is a mount path/, V2],
    ['kv put s/a', 2, /missing KEY=VALUE, usage: outpost kv put/],
    ['kv put s/a hunter2', 2, /argument 1 is not KEY=VALUE/],
    ['kv patch s/a', 2, /missing KEY=VALUE or -remove-data KEY/],
    ['kv patch s/a k=v', 1, /is not versioned: enable versions with "outpost kv enable-versioning s"/, V1],
    [
      'kv patch -method=patch s/a k=v',
      1,
      /permission denied/,
      { ...V2, 'PATCH s/data/a': [403, { errors: ['permission denied'] }] },
    ],
    [
      'kv patch s/a k=v',
      2,
      /nothing was changed at s\/data\/a: no value found/,
      { ...V2, 'PATCH s/data/a': [404, { errors: [] }] },
    ],
    [
      'kv patch -method=rw s/a k=v',
      1,
      /no data found at s\/data\/a: the latest version is deleted/,
      { ...V2, 'GET s/data/a': [404, read(null, deleted)] },
    ],
    ['kv metadata get s/a', 1, /is not versioned/, V1],
    ['kv undelete s/a', 2, /missing -versions, such as -versions=1,2/],
    ['kv destroy -versions=x s/a', 2, /expected numbers such as 1,2, got "x"/],
    ['kv rollback s/a', 2, /missing -version,/],
    [
      'kv rollback -version=2 s/a',
      1,
      /version 2 of s\/data\/a is deleted or destroyed/,
      { ...V2, 'GET s/data/a': [200, read({}, version(5))], 'GET s/data/a?version=2': [200, read({ k: 1 }, deleted)] },
    ],
    ['kv get s/a', 1, /no KV engine at s\/a, or/, { [ASK]: [403, { errors: ['preflight capability check'] }] }],
    // With a token, the text does not ask for one.
    [
      'kv get s/a',
      1,
      /: check the path and the policies of the token from OUTPOST_TOKEN/,
      { [ASK]: [403, { errors: ['preflight capability check'] }] },
    ],
    ['kv get s/a', 1, /is a mount of type totp, not kv/, { [ASK]: [200, { data: { path: 's/', type: 'totp' } }] }],
    [
      'kv list s/a',
      1,
      /no value found at s\/metadata\/a/,
      { ...V2, 'GET s/metadata/a?list=true': [404, { errors: [] }] },
    ],
  ]
  for (const [line, expected, message, answers = {}] of rows) {
    core.answers = answers
    core.asked.length = 0
    const { code, err, out } = await runAt(core, line.split(' '))
    assert.deepEqual([code, out], [expected, ''], `${line}: ${err}`)
    assert.match(err, message)
    assert.ok(!err.includes('hunter2'))
    const written = core.asked.filter((asked) => /^(?:PUT|POST|DELETE)/.test(asked.line))
    assert.deepEqual(written, [], line)
  }
})

test('a secret is shown in three parts', async (t) => {
  const core = await recordingCore(t)
  const data =
    '{"data":{"data":{"ttl":60,"id":12345678901234567890,"user":"app"},"metadata":{"created_time":"2026-11-21T10:00:00Z","deletion_time":"","destroyed":false,"version":3}}}'
  core.answers = { ...V2, 'GET s/data/a': [200, data] }
  const { out } = await runAt(core, ['kv', 'get', 's/a'])
  const expected = [
    '== Secret Path ==',
    's/data/a',
    '',
    '============= Metadata ==============',
    'Key              Value',
    '---              -----',
    'created_time     2026-11-21T10:00:00Z',
    'deletion_time    n/a',
    'destroyed        false',
    'version          3',
    '',
    '=========== Data ===========',
    'Key     Value',
    '---     -----',
    'id      12345678901234567890',
    'ttl     60',
    'user    app',
    '',
  ]
  assert.equal(out, expected.join('\n'))
})
