/**
 * Many writers of one secret at once. `OUTPOST_RACE_ROUNDS=1000` makes the whole of it.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { listenTo } from '../../helpers/core-listener.ts'
import { openKv, readSecret as read, writeSecret as write } from '../../helpers/kv-world.ts'
import { send } from '../../helpers/openbao-replay.ts'

const ROUNDS = Number(process.env['OUTPOST_RACE_ROUNDS'] ?? 30)
const WRITERS = Array.from({ length: 100 }, (_, writer) => writer)

test(`of 100 writers with the same cas exactly one wins, ${ROUNDS} times`, async (t) => {
  const world = await openKv(t)
  for (let round = 0; round < ROUNDS; round++) {
    const method = round % 2 === 0 || round === 0 ? 'POST' : 'PATCH'
    const answers = await Promise.all(
      WRITERS.map((writer) => world.ask(method, 'secret/data/a', { data: { round, writer }, options: { cas: round } })),
    )
    const winners = WRITERS.filter((writer) => answers[writer]?.status === 200)
    assert.equal(winners.length, 1, `round ${round}: ${winners.length} winners`)
    assert.ok(answers.every(({ status }) => status === 200 || status === 400))
    assert.deepEqual((await read(world, 'a')).data, { round, writer: winners[0] })
    assert.equal((await read(world, 'a')).metadata?.['version'], round + 1)
  }
})

test('exactly one of 100 concurrent writers with the same cas wins', async (t) => {
  const world = await openKv(t)
  const port = await listenTo(t, world)
  const headers = { 'X-Vault-Token': world.rootToken }
  for (let round = 0; round < 5; round++) {
    const answers = await Promise.all(
      WRITERS.map((writer) => {
        const body = JSON.stringify({ data: { writer }, options: { cas: round } })
        return send(port, { method: 'POST', path: '/v1/secret/data/a', headers, body })
      }),
    )
    assert.equal(answers.filter(({ status }) => status === 200).length, 1)
  }
})

test('100 concurrent patches keep the changes of each other', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', { first: true })
  const patches = WRITERS.map((writer) => world.ask('PATCH', 'secret/data/a', { data: { [`w${writer}`]: writer } }))
  const versions = (await Promise.all(patches)).map(({ body }) => body.data['version'])
  assert.deepEqual(
    versions,
    WRITERS.map((writer) => writer + 2),
  )
  const { data } = await read(world, 'a')
  assert.deepEqual(data, { first: true, ...Object.fromEntries(WRITERS.map((writer) => [`w${writer}`, writer])) })
})

test('100 concurrent writers without cas create 100 versions that each read back as written', async (t) => {
  const world = await openKv(t)
  assert.equal((await world.ask('POST', 'secret/config', { max_versions: 200 })).status, 204)
  const answers = await Promise.all(WRITERS.map((writer) => world.ask('POST', 'secret/data/a', { data: { writer } })))
  for (const [writer, { body }] of answers.entries()) {
    assert.deepEqual((await read(world, 'a', `?version=${String(body.data['version'])}`)).data, { writer })
  }
})

test('names added to and removed from one folder concurrently are consistent', async (t) => {
  const world = await openKv(t)
  const write300 = Array.from({ length: 300 }, (_, at) => world.ask('POST', `secret/data/f/${at}`, { data: {} }))
  await Promise.all(write300)
  const changes = Array.from({ length: 300 }, (_, at) =>
    at % 3 === 0
      ? world.ask('DELETE', `secret/metadata/f/${at}`)
      : world.ask('POST', `secret/data/${at % 3 === 1 ? 'f' : 'g'}/new${at}`, { data: {} }),
  )
  await Promise.all(changes)
  const all = Array.from({ length: 300 }, (_, at) => at)
  const wanted = [
    ...all.filter((at) => at % 3 !== 0).map(String),
    ...all.filter((at) => at % 3 === 1).map((at) => `new${at}`),
  ]
  assert.deepEqual((await world.ask('LIST', 'secret/metadata/f')).body.data['keys'], wanted.sort())
})
