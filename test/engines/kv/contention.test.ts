/**
 * Concurrent operations over HTTP on a few secrets: the guarantees to one caller hold regardless of others.
 * `OUTPOST_CONTENTION_ROUNDS=10` for a longer look.
 */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { listenTo } from '../../helpers/core-listener.ts'
import { Random } from '../../helpers/frames.ts'
import { expectStatus as expect, openKv } from '../../helpers/kv-world.ts'
import { send } from '../../helpers/openbao-replay.ts'

const ROUNDS = Number(process.env['OUTPOST_CONTENTION_ROUNDS'] ?? 0.1)
const range = (count: number) => Array.from({ length: count }, (_, at) => at)
const rounds = (count: number) => range(Math.ceil(count * ROUNDS))

interface Answer {
  readonly status: number
  readonly data: Readonly<Record<string, unknown>>
  readonly text: string
}

type Ask = (method: string, path: string, body?: unknown) => Promise<Answer>

async function opened(t: TestContext, version: '1' | '2' = '2') {
  const world = await openKv(t, version)
  const port = await listenTo(t, world)
  const ask: Ask = async (method, path, body) => {
    const patch = method === 'PATCH' ? { 'Content-Type': 'application/merge-patch+json' } : {}
    const headers = { 'X-Vault-Token': world.rootToken, ...patch }
    const sent = body === undefined ? {} : { body: JSON.stringify(body) }
    const { body: text, status } = await send(port, { method, path: `/v1/secret/${path}`, headers, ...sent })
    const { data } = JSON.parse(text || '{}') as { data?: Record<string, unknown> }
    assert.ok(status < 500, `${method} ${path}: ${status} ${text}`)
    return { status, text, data: data ?? {} }
  }
  return { world, ask }
}

/** Does it again and again until what is returned is called. */
function always(work: (at: number) => Promise<void>): () => Promise<void> {
  const state = { isOver: false }
  const loop = async () => {
    for (let at = 0; !state.isOver; at++) await work(at)
  }
  const looping = loop()
  // Its error is thrown where it is awaited.
  looping.catch(() => undefined)
  return async () => {
    state.isOver = true
    await looping
  }
}

type Account = { readonly n: number; readonly note?: number }

test('readers see a transaction whole or not at all during concurrent writes', async (t) => {
  const { ask } = await opened(t)
  const accounts = range(5).map((at) => `bank/${at}`)
  for (const account of accounts) await ask('POST', `data/${account}`, { data: { n: 20 } })
  let [moved, seen, checked] = [0, 0, 0]
  const read = async (account: string) => {
    const { data } = await ask('GET', `data/${account}`)
    const { version } = data['metadata'] as { version: number }
    return { n: (data['data'] as Account).n, version }
  }
  const move = async (random: Random) => {
    const [from, to] = [random.pick(['bank/0', 'bank/1', 'bank/2']), random.pick(['bank/3', 'bank/4'])]
    const [before, after] = [await read(from), await read(to)]
    const operations = [
      { op: 'patch', path: from, data: { n: before.n - 1 }, cas: before.version },
      { op: 'patch', path: to, data: { n: after.n + 1 }, cas: after.version },
    ]
    const { status, text } = await ask('POST', 'transaction', { operations })
    assert.ok(status === 200 || (status === 400 && text.includes('did not match')), text)
    if (status === 200) moved++
  }
  const stop = [
    // Plain writes that leave the counters alone.
    always(async (at) => void (await ask('PATCH', `data/bank/${at % 5}`, { data: { note: at } }))),
    ...range(3).map(() =>
      always(async () => {
        const { data } = await ask('GET', 'export/bank')
        const all = Object.values(data['secrets'] as Record<string, { data: Account }>)
        assert.equal(
          all.reduce((sum, { data: { n } }) => sum + n, 0),
          100,
          `an export saw ${JSON.stringify(all)}`,
        )
        seen++
      }),
    ),
    always(async () => {
      const found = await Promise.all(accounts.map(read))
      const operations = found.map(({ version }, at) => ({ op: 'check', path: `bank/${at}`, cas: version }))
      if ((await ask('POST', 'transaction', { operations })).status !== 200) return
      assert.equal(
        found.reduce((sum, { n }) => sum + n, 0),
        100,
        'what a transaction has checked was never so',
      )
      checked++
    }),
  ]
  const writers = range(6).map(async (writer) => {
    const random = new Random(writer)
    for (const _ of rounds(25)) await move(random)
  })
  await Promise.all(writers)
  for (const each of stop) await each()
  t.diagnostic(`${moved} moved, ${seen} exports, ${checked} checks`)
  assert.ok(moved > 0 && seen > 0)
  const last = await Promise.all(accounts.map(read))
  assert.equal(
    last.reduce((sum, { n }) => sum + n, 0),
    100,
  )
})

test('a secret that always exists is always read, even with short-lived versions', async (t) => {
  const { ask } = await opened(t)
  for (const name of ['one', 'two']) await ask('POST', `metadata/${name}`, { max_versions: 1 })
  for (const name of ['one', 'two']) await ask('POST', `data/${name}`, { data: { at: -1 } })
  const stop = range(4).map((reader) =>
    always(async () => {
      const { data, status, text } = await ask('GET', `data/${reader % 2 === 0 ? 'one' : 'two'}`)
      assert.equal(status, 200, text)
      const { at } = data['data'] as { at: number }
      const { version } = data['metadata'] as { version: number }
      assert.ok(reader % 2 === 1 || at === version - 2, `version ${version} has the data of ${at + 2}`)
    }),
  )
  const writers = [
    ...range(2).map(async () => {
      for (const at of rounds(100)) await ask('POST', 'data/two', { data: { at } })
    }),
    (async () => {
      for (const at of rounds(200)) await ask('POST', 'data/one', { data: { at } })
    })(),
  ]
  await Promise.all(writers)
  for (const each of stop) await each()
})

interface Event {
  readonly sequence: number
  readonly path: string
  readonly change: string
  readonly version: number
}

test('each watcher receives every commit once and in order, and none that cannot be read yet', async (t) => {
  const { ask } = await opened(t)
  const { cursor: first } = (await ask('GET', 'watch')).data as { cursor: string }
  const written = new Map<string, Set<number>>()
  let isOver = false
  const watch = async (watcher: number) => {
    const events: Event[] = []
    let cursor = first
    for (let isLast = false; !isLast; ) {
      isLast = isOver
      const { data } = await ask('GET', `watch${watcher % 2 === 0 ? '' : '/f'}?cursor=${cursor}&wait=1`)
      assert.equal(data['reset'], undefined)
      const told = data['events'] as Event[]
      for (const { path, version, change } of told.slice(0, 2)) {
        if (change !== 'write') continue
        const { data: metadata, status } = await ask('GET', `metadata/${path}`)
        assert.ok(status === 404 || Number(metadata['current_version']) >= version, `${path} is not ${version} yet`)
      }
      events.push(...told)
      cursor = String(data['cursor'])
    }
    return events
  }
  const watching = range(6).map(watch)
  const writers = range(8).map(async (writer) => {
    const random = new Random(writer)
    for (const at of rounds(40)) {
      const name = `f/${random.between(0, 5)}`
      const operations = range(random.between(1, 3)).map((part) => ({
        op: 'put',
        path: `f/w${writer}-${part}`,
        data: { at },
      }))
      const { data, status } =
        at % 3 === 0
          ? await ask('POST', 'transaction', { operations })
          : await ask('POST', `data/${name}`, { data: { at } })
      assert.equal(status, 200)
      const made = at % 3 === 0 ? (data['results'] as { path: string; version: number }[]) : [{ path: name, ...data }]
      for (const { path, version } of made as { path: string; version: number }[]) {
        const versions = written.get(path) ?? new Set()
        assert.ok(!versions.has(version), `two made version ${version} of ${path}`)
        written.set(path, versions.add(version))
      }
    }
  })
  await Promise.all(writers)
  isOver = true
  const all = await Promise.all(watching)
  const wanted = [...written].flatMap(([path, versions]) => [...versions].map((version) => `${path} ${version}`))
  for (const events of all) {
    assert.deepEqual(events, all[0])
    assert.deepEqual(events.map(({ path, version }) => `${path} ${version}`).sort(), wanted.sort())
    const sequences = events.map(({ sequence }) => sequence)
    assert.deepEqual(
      sequences,
      sequences.toSorted((a, b) => a - b),
    )
  }
})

test('a reported change is readable immediately', async (t) => {
  const { world } = await opened(t)
  const { cursor: first } = (await world.ask('GET', 'secret/watch')).body.data
  let told = 0
  let cursor = String(first)
  const stop = always(async () => {
    const { data } = (await world.ask('GET', `secret/watch?cursor=${cursor}&wait=1`)).body
    cursor = String(data['cursor'])
    const newest = new Map((data['events'] as Event[]).map(({ path, version }) => [path, version]))
    for (const [path, version] of newest) {
      const { body } = await world.ask('GET', `secret/metadata/${path}`)
      assert.ok(Number(body.data?.['current_version'] ?? 0) >= version, `${path} is not ${version} yet`)
      told++
    }
  })
  for (const at of rounds(5)) {
    await Promise.all(range(100).map((each) => world.ask('POST', `secret/data/a${each % 10}`, { data: { at } })))
  }
  await stop()
  assert.ok(told > 0)
})

test('a write to a secret that is moved back and forth is at exactly one place', async (t) => {
  const { ask } = await opened(t)
  const names = ['m/a', 'm/b']
  await ask('POST', 'config', { max_versions: 5000 })
  const kept: string[] = []
  let moves = 0
  const stop = range(2).map((mover) =>
    always(async (at) => {
      const [written = '', free] = [names[at % 2], `m/to-${mover}-${at % 7}`]
      const [from, to] = at % 3 === 0 ? [free, written] : [written, free]
      const { status } = await ask('POST', `move/${from}`, { to })
      assert.ok(status === 200 || status === 400 || status === 404)
      if (status === 200) moves++
    }),
  )
  const writers = range(6).map(async (writer) => {
    // Each mover is to find one of them.
    for (const at of rounds(80)) {
      const value = `${writer}-${at}`
      const { status, text } = await ask('POST', `data/${names[(writer + at) % 2] ?? ''}`, { data: { value } })
      assert.equal(status, 200, text)
      kept.push(value)
    }
  })
  await Promise.all(writers)
  for (const each of stop) await each()
  const found: string[] = []
  const scanned = ((await ask('SCAN', 'metadata')).data['keys'] ?? []) as string[]
  for (const name of scanned) {
    const { data, status } = await ask('GET', `metadata/${name}`)
    assert.equal(status, 200)
    for (const version of Object.keys(data['versions'] as object)) {
      const read = await ask('GET', `data/${name}?version=${version}`)
      assert.equal(read.status, 200, `version ${version} of ${name} has no data`)
      found.push((read.data['data'] as { value: string }).value)
    }
  }
  assert.deepEqual(found.toSorted(), kept.toSorted())
  t.diagnostic(`${kept.length} writes, ${moves} moves`)
  assert.ok(moves > 0)
})

test('a destroyed version stays destroyed during concurrent undeletes', async (t) => {
  const { ask } = await opened(t)
  const names = range(6).map((at) => `s${at}`)
  const destroy = async (name: string, versions: readonly number[]) => {
    assert.equal((await ask('POST', `destroy/${name}`, { versions })).status, 204)
    for (const version of versions) assert.equal((await ask('GET', `data/${name}?version=${version}`)).status, 404)
  }
  for (const round of rounds(4)) {
    for (const name of names) for (const _ of range(4)) await ask('POST', `data/${name}`, { data: { round } })
    const last = 4 * (round + 1)
    const versions = range(4).map((at) => last - at)
    await Promise.all(
      names.flatMap((name) => [
        ask('POST', `delete/${name}`, { versions }),
        ask('POST', `undelete/${name}`, { versions }),
        destroy(name, versions.slice(2)),
        ask('POST', `undelete/${name}`, { versions }),
        ask('POST', 'transaction', { operations: [{ op: 'undelete', path: name, versions }] }),
        ask('POST', `copy/${name}`, { to: `copy-${round}-${name}` }),
      ]),
    )
    for (const name of [...names, ...names.map((each) => `copy-${round}-${each}`)]) {
      const { data } = await ask('GET', `metadata/${name}`)
      const all = data['versions'] as Record<string, { destroyed: boolean; deletion_time: string }>
      for (const version of versions) {
        const read = await ask('GET', `data/${name}?version=${version}`)
        const { deletion_time: time, destroyed } = all[version] ?? assert.fail()
        assert.equal(read.status, destroyed || time !== '' ? 404 : 200, `${name} ${version}: ${read.text}`)
        if (versions.slice(2).includes(version) && !name.startsWith('copy')) assert.ok(destroyed)
      }
    }
  }
})

for (const version of ['1', '2'] as const) {
  test(`a list with version ${version} shows no name that cannot be read, and each that was written`, async (t) => {
    const { ask } = await opened(t, version)
    const [list, data] = version === '1' ? ['l', 'l'] : ['metadata/l', 'data/l']
    const body = (at: number) => (version === '1' ? { at } : { data: { at } })
    const written = new Set<string>()
    const stop = range(3).map(() =>
      always(async () => {
        const before = [...written]
        const names = ((await ask('LIST', list)).data['keys'] ?? []) as string[]
        for (const name of before) assert.ok(names.includes(name), `${name} was written and is not listed`)
        for (const name of names.filter((each) => each !== 'gone/').slice(-3))
          assert.equal((await ask('GET', `${data}/${name}`)).status, 200, name)
      }),
    )
    const writers = range(8).map(async (writer) => {
      for (const at of rounds(40)) {
        const name = `${at}-${writer}`
        await ask('POST', `${data}/${name}`, body(at))
        written.add(name)
        // What comes and goes in the same folder.
        await ask('POST', `${data}/gone/${writer}`, body(at))
        await ask('DELETE', version === '1' ? `l/gone/${writer}` : `metadata/l/gone/${writer}`)
      }
    })
    await Promise.all(writers)
    for (const each of stop) await each()
    const names = ((await ask('LIST', list)).data['keys'] ?? []) as string[]
    assert.deepEqual(names, [...written].toSorted())
  })
}

test('writers of a secret with expiring versions never read an expired one', async (t) => {
  const { ask, world } = await opened(t)
  await ask('POST', 'config', { delete_version_after: '5s' })
  const stop = [
    always(async () => {
      await ask('GET', 'data/a')
      world.nowMs += 700
    }),
    ...range(3).map((reader) =>
      always(async () => {
        const fromMs = world.nowMs
        const { data, status } = await ask('GET', `data/${reader === 0 ? 'a' : 'b'}`)
        const { deletion_time: time = '' } = (data['metadata'] ?? {}) as { deletion_time?: string }
        if (status === 200) assert.ok(Date.parse(time) > fromMs, `read until ${time}`)
        else if (time !== '') assert.ok(Date.parse(time) <= world.nowMs, `not read before ${time}`)
      }),
    ),
  ]
  const writers = range(3).map(async (writer) => {
    for (const at of rounds(40)) {
      const name = writer === 0 ? 'a' : 'b'
      const { data } = await ask('POST', `data/${name}`, { data: { at } })
      if (at % 4 === 0) await ask('POST', `undelete/${name}`, { versions: [data['version']] })
    }
  })
  await Promise.all(writers)
  for (const each of stop) await each()
  await expect(world, 204, 'POST', 'secret/config', { delete_version_after: '0s' })
})
