/** Numbers in secrets come back as they were written, whichever way they go. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import type { CoreWorld } from '../../helpers/core-world.ts'
import { Random } from '../../helpers/frames.ts'
import { expectStatus as expect, openKv } from '../../helpers/kv-world.ts'

/** Each is another number, or another text, once it was a number of this language. */
const ODD =
  '{"max":9007199254740993,"id":12345678901234567890,"one":1.0,"price":1.10,"hundred":1e2,"Big":1E5,"minus":-0,' +
  '"small":0.1000000000000000055,"list":[1.0,[2.50,-0.0]],"in":{"deep":{"x":1.00}},"text":"1.0","s\\"[1.0":true,"n":null}'

async function textOf(world: CoreWorld, path: string): Promise<string> {
  const { status, text } = await world.ask('GET', path)
  assert.equal(status, 200, text)
  return text
}

async function holds(world: CoreWorld, path: string, wanted: string): Promise<void> {
  const text = await textOf(world, path)
  assert.ok(text.includes(wanted), `${path}: ${text}`)
}

async function withOdd(t: TestContext): Promise<CoreWorld> {
  const world = await openKv(t)
  await expect(world, 200, 'POST', 'secret/data/a', `{"data": ${ODD}, "options": {"cas": 0.0}}`)
  return world
}

test('numbers keep their notation when data is read, copied and moved', async (t) => {
  const world = await withOdd(t)
  await holds(world, 'secret/data/a', `{"data":${ODD},"metadata"`)
  await expect(world, 200, 'POST', 'secret/copy/a', { to: 'b' })
  await expect(world, 200, 'POST', 'secret/move/b', { to: 'c/d' })
  await holds(world, 'secret/data/c/d', `"data":${ODD},"metadata"`)
  const { data } = await expect(world, 200, 'GET', 'secret/subkeys/a')
  assert.deepEqual(data['subkeys'], {
    ...Object.fromEntries(['max', 'id', 'one', 'price', 'hundred', 'Big', 'minus', 'small'].map((key) => [key, null])),
    list: null,
    in: { deep: { x: null } },
    text: null,
    's"[1.0': null,
    n: null,
  })
})

test('a patch preserves the digits of new and unchanged members', async (t) => {
  const world = await withOdd(t)
  await expect(world, 200, 'PATCH', 'secret/data/a', '{"data":{"text":"t","in":{"deep":{"y":2.0}},"one":null,"n":7}}')
  const patched = ODD.replace('"one":1.0,', '')
    .replace('{"x":1.00}', '{"x":1.00,"y":2.0}')
    .replace('"text":"1.0"', '"text":"t"')
    .replace(',"n":null}', ',"n":7}')
  await holds(world, 'secret/data/a', `"data":${patched},"metadata"`)
  // A number in the place of an object, and the other way round.
  await expect(world, 200, 'PATCH', 'secret/data/a', '{"data":{"in":1.50,"max":{"is":2.50}}}')
  const turned = patched.replace('"max":9007199254740993', '"max":{"is":2.50}').replace(/"in":.*?\}\}/, '"in":1.50')
  await holds(world, 'secret/data/a', `"data":${turned},"metadata"`)
})

test('a transaction preserves digits', async (t) => {
  const world = await withOdd(t)
  const operations = `[{"op":"put","path":"b","data":${ODD}},{"op":"patch","path":"a","data":{"one":2.0}}]`
  await expect(world, 200, 'POST', 'secret/transaction', `{"operations":${operations}}`)
  await holds(world, 'secret/data/b', `"data":${ODD},"metadata"`)
  await holds(world, 'secret/data/a', `"data":${ODD.replace('"one":1.0', '"one":2.0')},"metadata"`)
})

test('an export preserves digits, so its import changes nothing, but another notation is a change', async (t) => {
  const world = await withOdd(t)
  const text = await textOf(world, 'secret/export')
  assert.ok(text.includes(`"secrets":{"a":{"data":${ODD},"custom_metadata":null}}`), text)
  const secrets = `{"secrets":{"a":{"data":${ODD}},"b":{"data":${ODD}}}}`
  const { data } = await expect(world, 200, 'POST', 'secret/import', secrets)
  assert.deepEqual(data['secrets'], { a: 'unchanged', b: 'created' })
  await holds(world, 'secret/data/b', `"data":${ODD},"metadata"`)
  const { data: again } = await expect(world, 200, 'POST', 'secret/import', secrets.replaceAll('1.10', '1.1'))
  assert.deepEqual(again['secrets'], { a: 'updated', b: 'updated' })
  const plain = '{"secrets":{"1":{"data":{"i":1.0}},"__proto__":{"data":{"i":2.0}},"0":{"data":{"i":3.0}}}}'
  await expect(world, 200, 'POST', 'secret/import/names', plain)
  for (const [name, i] of Object.entries({ 0: '3.0', 1: '1.0', ['__proto__']: '2.0' })) {
    await holds(world, `secret/data/names/${name}`, `"data":{"i":${i}}`)
  }
  await expect(world, 200, 'POST', 'secret/data/env', '{"data":{"ID":12345678901234567890,"A":[1.0]}}')
  const env = await expect(world, 200, 'GET', 'secret/export/env?format=env')
  assert.equal(env.data['text'], "ID=12345678901234567890\nA='[1.0]'\n")
})

test('a diff compares and shows numbers in their notation', async (t) => {
  const world = await withOdd(t)
  await expect(
    world,
    200,
    'POST',
    'secret/data/a',
    `{"data":${ODD.replace('567890,', '567891,').replace('[2.50', '[2.5')}}`,
  )
  const changes = (await expect(world, 200, 'GET', 'secret/diff/a')).data['changes']
  assert.deepEqual(changes, [
    { key: '/id', change: 'changed' },
    { key: '/list', change: 'changed' },
  ])
  await holds(
    world,
    'secret/diff/a?values=true',
    '{"key":"/id","change":"changed","before":12345678901234567890,"after":12345678901234567891}',
  )
})

test('digits are preserved without versions and through an upgrade', async (t) => {
  const world = await openKv(t, '1')
  await expect(world, 204, 'POST', 'secret/a', ODD)
  await holds(world, 'secret/a', `"data":${ODD},`)
  await expect(world, 200, 'POST', 'sys/mounts/secret/tune', { options: { version: '2' } })
  await expect(world, 200, 'PATCH', 'secret/data/a', '{"data":{"one":-0}}')
  await holds(world, 'secret/data/a', `"data":${ODD.replace('"one":1.0', '"one":-0')},"metadata"`)
})

test('of a duplicate member the last counts, and invalid numbers are refused', async (t) => {
  const world = await openKv(t)
  const twice = '{"data":{"a":1.0},"data":{"__proto__":{"x":1.0},"a":1e2,"b":0,"a":{"c":-0},"b":1.10}}'
  await expect(world, 200, 'POST', 'secret/data/a', twice)
  await holds(world, 'secret/data/a', '"data":{"__proto__":{"x":1.0},"a":{"c":-0},"b":1.10},"metadata"')
  for (const huge of ['1e400', '-1E400', '1'.repeat(400)]) {
    await expect(world, 400, 'POST', 'secret/data/a', `{"data":{"x":${huge}}}`)
  }
  const deep = `${'{"a":'.repeat(990)}1.0${'}'.repeat(990)}`
  await expect(world, 200, 'POST', 'secret/data/deep', `{"data":${deep}}`)
  await holds(world, 'secret/data/deep', deep)
  await expect(world, 200, 'PATCH', 'secret/data/deep', `{"data":${deep.replace('1.0', '2.0')}}`)
  await holds(world, 'secret/data/deep', deep.replace('1.0', '2.0'))
})

function listOf(count: number, one: string): string {
  return `{"data":{"x":[${Array.from({ length: count }, () => one).join(',')}]}}`
}

test('the number of values in a body that need their notation stored is limited', async (t) => {
  const world = await openKv(t)
  await expect(world, 200, 'POST', 'secret/data/a', listOf(50_000, '1.0'))
  const { errors } = await expect(world, 400, 'POST', 'secret/data/b', listOf(50_001, '1.0'))
  assert.match(String(errors[0]), /^more than 50000 numbers such as 1\.0 .* write them as strings/)
  await expect(world, 404, 'GET', 'secret/data/b')
  await expect(world, 200, 'POST', 'secret/data/c', listOf(60_000, '-12.5'))
  // A patch adds to what is there, and once that is too much, to nothing.
  await expect(world, 200, 'PATCH', 'secret/data/a', listOf(50_000, '2e3').replace('"x"', '"y"'))
  const { errors: why } = await expect(world, 400, 'PATCH', 'secret/data/a', '{"data":{"z":1}}')
  assert.match(String(why[0]), /^more than 50000 numbers/)
  // It can be read and copied all the same.
  await expect(world, 200, 'GET', 'secret/export')
  await expect(world, 200, 'GET', 'secret/diff/a')
  await expect(world, 200, 'POST', 'secret/copy/a', { to: 'd' })
})

/** A number as JSON may write it. */
function number(random: Random): string {
  const digits = (most: number) => Array.from({ length: random.between(1, most) }, () => random.between(0, 9)).join('')
  const whole = random.chance(0.3) ? '0' : `${random.between(1, 9)}${random.chance(0.5) ? '' : digits(22)}`
  const fraction = random.chance(0.4) ? `.${digits(20)}` : ''
  const exponent = random.chance(0.3) ? `${random.pick(['e', 'E'])}${random.pick(['', '+', '-'])}${digits(2)}` : ''
  return `${random.chance(0.3) ? '-' : ''}${whole}${fraction}${exponent}`
}

test('any number is returned in the notation in which it was written', async (t) => {
  const seed = Number(process.env['OUTPOST_SEED'] ?? Date.now() % 2 ** 31)
  t.diagnostic(`OUTPOST_SEED=${seed}`)
  const random = new Random(seed)
  const world = await openKv(t)
  for (let round = 0; round < 300; round++) {
    const space = random.pick(['', '', ' ', '\n\t', '  \r\n'])
    const list = Array.from({ length: random.between(0, 3) }, () => number(random))
    const members = [
      `"a":${space}${number(random)}`,
      `"l":[${space}${list.join(`${space},${space}`)}]`,
      '"s":"x,-0.50"',
    ]
    const data = `{${members.join(`${space},`)}}`
    await expect(world, 200, 'POST', 'secret/data/a', `{"data":${space}${data}}`)
    const wanted = `{${members[0]},${members[1]}`.replaceAll(/\s/g, '')
    await holds(world, 'secret/data/a', `"data":${wanted},"s":"x,-0.50"},"metadata"`)
  }
})
