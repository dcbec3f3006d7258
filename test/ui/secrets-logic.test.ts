/** Data, differences, paths and versions of secrets in the web interface, without a browser. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { lineReader } from '../../ui/views/secrets/line-reader.ts'
import { generatePassword } from '../../ui/views/secrets/password.ts'
import {
  dataOfRows,
  dataText,
  parseData,
  parseJsonText,
  rowsOf,
  valueText,
} from '../../ui/views/secrets/secret-data.ts'
import {
  changesOf,
  isSameData,
  mergedData,
  mergeRows,
  type Side,
  summaryOf,
} from '../../ui/views/secrets/secret/secret-diff.ts'
import {
  baseName,
  folderOf,
  foldersOf,
  kvPath,
  nameFault,
  nameMatcher,
  viewOf,
} from '../../ui/views/secrets/secret-path.ts'

function faultOf(text: string): string | undefined {
  const { fault } = parseData(text)
  return fault && `${fault.line}:${fault.column}: ${fault.message}`
}

function dataOf(text: string) {
  const { data } = parseData(text)
  assert.ok(data)
  return data
}

test('numbers keep their digits from the response to the next write', () => {
  const text = '{"big":12345678901234567890,"one":1.0,"zero":-0,"exponent":1e5,"nested":{"list":[1.50]}}'
  const data = dataOf(text)
  assert.equal(JSON.stringify(data), text)
  const { data: fromRows, faults } = dataOfRows(rowsOf(data))
  assert.deepEqual(faults, [])
  assert.equal(JSON.stringify(fromRows), text)
  assert.equal(JSON.stringify(dataOf(dataText(data))), text)
  assert.equal(valueText(data['one']), '1.0')
})

test('a fault in JSON has its line and column', () => {
  assert.match(faultOf('{\n  "a": 1,\n  "b" 2\n}') ?? '', /^3:7: /)
  assert.match(faultOf('{\n  "a": tru\n}') ?? '', /^2:8: /)
  assert.match(faultOf('') ?? '', /^1:1: /)
  assert.match(faultOf('[1]') ?? '', /^1:1: /)
  assert.match(faultOf('{"a": 1} x') ?? '', /^1:10: /)
  assert.equal(faultOf('{}'), undefined)
})

test('a repeated key is a fault, because only its last value would be stored', () => {
  assert.equal(faultOf('{"a": 1,\n "a": 2}'), '2:2: the key is repeated')
  assert.equal(faultOf('{"a": [{"b": 1, "b": 2}]}'), '1:17: the key is repeated')
})

test('a fault does not quote a value of the secret', () => {
  for (const text of ['{"a": "hunter2}', '{"a": hunter2}', '{"a": "x", hunter2', '{"a": "hunter2" "b"}'])
    assert.ok(!faultOf(text)?.includes('hunter2'), text)
})

test('values that the parser of positions refuses are accepted, because JSON allows them', () => {
  assert.equal(JSON.stringify(dataOf('{"a": 1e999}')), '{"a":1e999}')
  const deep = `{"a":${'['.repeat(150)}${']'.repeat(150)}}`
  assert.equal(JSON.stringify(dataOf(deep)), deep)
})

function row(id: number, key: string, text: string, isJson = false) {
  return { id, key, text, isJson }
}

test('rows are strings or JSON; faults name the row', () => {
  const { data } = dataOfRows([row(0, 'a', '1'), row(1, 'b', '1', true), row(2, '', ''), row(3, 'c', '{"x":[]}', true)])
  assert.deepEqual(data, { a: '1', b: 1, c: { x: [] } })
  const { faults } = dataOfRows([row(0, 'a', ''), row(1, 'a', ''), row(2, '', 'x'), row(3, 'd', 'tru', true)])
  assert.deepEqual(
    faults.map(({ id }) => id),
    [1, 2, 3],
  )
})

test('a key named __proto__ is a key like any other', () => {
  const data = dataOf('{"__proto__":"x","constructor":"y"}')
  assert.deepEqual(Object.keys(data), ['__proto__', 'constructor'])
  assert.deepEqual(Object.keys(dataOfRows(rowsOf(data)).data), ['__proto__', 'constructor'])
  assert.deepEqual(
    changesOf({}, data).map(({ change, key }) => `${change} ${key}`),
    ['added __proto__', 'added constructor'],
  )
})

test('differences are per key: changed, added and removed', () => {
  const changes = changesOf({ a: '1', b: '2', c: { d: 1 } }, { b: '3', c: { d: 1 }, e: '5' })
  assert.deepEqual(
    changes.map(({ after, before, change, key }) => [key, change, before, after]),
    [
      ['a', 'removed', '1', undefined],
      ['b', 'changed', '2', '3'],
      ['e', 'added', undefined, '5'],
    ],
  )
  assert.equal(summaryOf(changes), '1 changed, 1 added, 1 removed')
  assert.equal(summaryOf([]), 'no differences')
})

test('a number that is written differently is a difference', () => {
  assert.equal(isSameData(dataOf('{"a":1.0}'), dataOf('{"a":1}')), false)
  assert.equal(isSameData(dataOf('{"a":1.0}'), dataOf('{"a":1.0}')), true)
  assert.equal(JSON.stringify(parseJsonText('1.0')), '1.0')
})

test('two changes of different keys are merged, of the same key they need a choice', () => {
  const base = { a: '1', b: '2', c: '3', d: '4' }
  const mine = { a: '1m', b: '2', c: '3m', d: '4' }
  const theirs = { a: '1', b: '2t', c: '3t', e: '5t' }
  const rows = mergeRows(base, mine, theirs)
  assert.deepEqual(
    rows.map(({ changedBy, key }) => `${key} ${changedBy}`),
    ['a mine', 'b theirs', 'c both', 'd theirs', 'e theirs'],
  )
  assert.equal(mergedData(base, rows, new Map()), undefined)
  const choose = (side: Side) => mergedData(base, rows, new Map([['c', side]]))
  assert.deepEqual(choose('mine'), { a: '1m', b: '2t', c: '3m', e: '5t' })
  assert.deepEqual(choose('theirs'), { a: '1m', b: '2t', c: '3t', e: '5t' })
  const all = (side: Side) => mergedData(base, rows, new Map(rows.map(({ key }) => [key, side])))
  assert.deepEqual(all('mine'), mine)
  assert.deepEqual(all('theirs'), theirs)
})

test('an equal change of both needs no choice', () => {
  const rows = mergeRows({ a: '1' }, { a: '2' }, { a: '2' })
  assert.deepEqual(
    rows.map(({ changedBy }) => changedBy),
    ['same'],
  )
  assert.deepEqual(mergedData({ a: '1' }, rows, new Map()), { a: '2' })
})

test('paths of views keep slashes and encode everything else', () => {
  assert.equal(viewOf('team/kv/', 'a b/ä%2F'), '/secrets/team%2Fkv/a%20b/%C3%A4%252F')
  assert.equal(viewOf('secret/', ''), '/secrets/secret')
  assert.equal(viewOf('secret/', 'app/'), '/secrets/secret/app/')
  assert.equal(folderOf('a/b/c'), 'a/b/')
  assert.equal(folderOf('a/b/'), 'a/')
  assert.equal(folderOf('a'), '')
  assert.equal(baseName('a/b/'), 'b/')
  assert.deepEqual(foldersOf('a/b/'), ['', 'a/', 'a/b/'])
  assert.equal(kvPath({ path: 'secret/', version: 2 }, 'data', 'x'), 'secret/data/x')
  assert.equal(kvPath({ path: 'old/', version: 1 }, 'data', 'x'), 'old/x')
})

test('names that the server refuses or a browser changes are refused', () => {
  for (const name of ['', '/a', 'a/', 'a//b', '..', 'a/../b', './a']) assert.ok(nameFault(name), name)
  for (const name of ['a', 'a/b', ' a', 'a..b', '...', '<b>']) assert.equal(nameFault(name), undefined, name)
})

test('lines are complete, also when a character is split between two chunks', async () => {
  const bytes = new TextEncoder().encode('{"a":"ä"}\n\n{"b":1}\n{"rest"')
  const stream = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const byte of bytes) controller.enqueue(new Uint8Array([byte]))
      controller.close()
    },
  })
  const lines: string[] = []
  for await (const line of lineReader(stream)) lines.push(line)
  assert.deepEqual(lines, ['{"a":"ä"}', '{"b":1}'])
})

test('generated passwords are long and different', () => {
  const passwords = new Set(Array.from({ length: 100 }, generatePassword))
  assert.equal(passwords.size, 100)
  for (const password of passwords) assert.match(password, /^[\w-]{32}$/)
})

test('names match as in the search of the server', () => {
  const names = ['app/db', 'app/DB-2', 'team/app', 'a.b']
  const found = (wanted: string) => names.filter(nameMatcher(wanted))
  assert.deepEqual(found('db'), ['app/db', 'app/DB-2'])
  assert.deepEqual(found('db*'), ['app/db', 'app/DB-2'])
  assert.deepEqual(found('*p'), ['team/app'])
  assert.deepEqual(found('app/*'), ['app/db', 'app/DB-2'])
  assert.deepEqual(found('*.*'), ['a.b'])
})
