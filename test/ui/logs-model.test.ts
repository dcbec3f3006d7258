/** The lines that a tail keeps: traces, heights, search, and how lines are shown. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Backlog } from '../../ui/views/logs/model/backlog.ts'
import { HeightIndex } from '../../ui/views/logs/model/height-index.ts'
import { LineSearch } from '../../ui/views/logs/model/line-search.ts'
import { expressionPattern } from '../../ui/views/logs/model/expression.ts'
import { literalPattern } from '../../ui/views/logs/model/text-pattern.ts'
import { columnsOf, formattedJson, levelOf, piecesOf, shownText } from '../../ui/views/logs/model/line-text.ts'
import { timeOfLine } from '../../ui/views/logs/model/line-time.ts'
import { LogBuffer } from '../../ui/views/logs/model/log-buffer.ts'
import { TraceJoiner } from '../../ui/views/logs/model/trace-joiner.ts'
import { counted } from '../../ui/components/plural.ts'
import { filterRows, rowsOf, taskState as wordOf } from '../../ui/views/logs/list/log-targets.ts'
import { formatLineAddress, isAddressOf, linkToLine, parseLineAddress } from '../../ui/views/logs/pane/line-link.ts'
import { namesOf } from '../../ui/views/logs/pane/target-names.ts'
import { parseTailQuery } from '../../ui/views/logs/pane/tail-query.ts'
import { rememberTails, tailsOf, wallPath, wallPathWith } from '../../ui/views/logs/wall/wall-tails.ts'

const ESC = '\u001b'
const LOG = { allocationId: '', task: 'web', type: 'stdout' }
const SOURCE = { index: 0, log: LOG }

function bufferOf(linesMax = 100): LogBuffer {
  return new LogBuffer({ linesMax, heightOf: ({ isOpen, more }) => (isOpen ? 1 + more.length : 1) })
}

function append(buffer: LogBuffer, ...texts: string[]) {
  return texts.map((text) => buffer.append({ source: SOURCE, text, file: 'web.stdout.0', endOffset: 0, receivedMs: 0 }))
}

/** Joins lines: the text of each entry with the number of its other lines. */
function joined(text: string): string[] {
  const joiner = new TraceJoiner()
  const entries: { head: string; more: number }[] = []
  for (const line of text.split('\n')) {
    const last = entries.at(-1)
    if (joiner.continues(line) && last) last.more++
    else entries.push({ head: line, more: 0 })
  }
  return entries.map(({ head, more }) => (more === 0 ? head : `${head} +${more}`))
}

test('stack traces of several languages belong to the line before them', () => {
  assert.deepEqual(
    joined(`INFO start
java.lang.IllegalStateException: no
\tat com.example.A.run(A.java:1)
Caused by: java.io.IOException: refused
\tat java.net.Socket.connect(Socket.java:2)
\t... 12 more
INFO next
2026-11-28 ERROR failed
java.lang.RuntimeException: x
\tat com.example.B.run(B.java:1)
INFO next`),
    ['INFO start', 'java.lang.IllegalStateException: no +4', 'INFO next', '2026-11-28 ERROR failed +2', 'INFO next'],
  )
  assert.deepEqual(
    joined(`Traceback (most recent call last):
  File "/app/load.py", line 31, in <module>
    main()
ValueError: bad row
done`),
    ['Traceback (most recent call last): +3', 'done'],
  )
  assert.deepEqual(
    joined(`TypeError: x is not a function
    at run (/app/a.js:1:2)
    at node:internal/main {
  code: 'X'
}
listening`),
    ['TypeError: x is not a function +4', 'listening'],
  )
  assert.deepEqual(
    joined(`panic: runtime error: index out of range

goroutine 1 [running]:
main.main()
\t/app/main.go:12 +0x1d
exit status 2
restarted`),
    ['panic: runtime error: index out of range +5', 'restarted'],
  )
})

test('indented lines without a trace are lines', () => {
  const text = 'servers:\n  - a\n  - b\ntotal 2\n   12 files'
  assert.deepEqual(joined(text), text.split('\n'))
})

test('heights: positions are exact while entries are added, removed and opened', () => {
  const index = new HeightIndex()
  let model: number[] = []
  let first = 0
  let seed = 7
  const random = (below: number) => (seed = (seed * 16807) % 2147483647) % below
  for (let step = 0; step < 6000; step++) {
    const height = 1 + random(4)
    index.push(height)
    model.push(height)
    if (random(3) === 0) {
      const id = first + random(model.length)
      index.set(id, 9)
      model[id - first] = 9
    }
    if (model.length > 1500) {
      index.shift()
      model.shift()
      first++
    }
    if (step % 97 !== 0) continue
    const id = first + random(model.length)
    const top = model.slice(0, id - first).reduce((sum, each) => sum + each, 0)
    assert.equal(index.topOf(id), top)
    assert.equal(index.idAt(top), id)
    assert.equal(index.idAt(top + (model[id - first] ?? 0) - 1), id)
    assert.equal(
      index.total,
      model.reduce((sum, each) => sum + each, 0),
    )
  }
  model = []
  assert.equal(index.idAt(1e9), first + 1500 - 1)
})

test('the buffer keeps the last lines, with the lines of traces, and knows what it removed', () => {
  const buffer = bufferOf(10)
  const [head] = append(buffer, 'head')
  assert.ok(head)
  for (let at = 0; at < 5; at++) assert.ok(buffer.appendTo(head, `trace ${at}`))
  append(buffer, '1', '2', '3', '4')
  buffer.trim()
  assert.deepEqual([buffer.first, buffer.lineCount], [0, 10])
  append(buffer, '5')
  buffer.trim()
  assert.deepEqual([buffer.first, buffer.lineCount, buffer.removedLines, buffer.removedHeight], [1, 5, 6, 1])
  assert.equal(buffer.appendTo(head, 'late'), false)
  assert.equal(buffer.get(0), undefined)
  assert.equal(buffer.get(1)?.text, '1')
  assert.equal(buffer.heights.topOf(buffer.end), 5)
})

test('the buffer passes a million lines', () => {
  const buffer = bufferOf(100_000)
  for (let at = 0; at < 1_000_000; at++) {
    append(buffer, `line ${at}`)
    if (at % 1000 === 0) buffer.trim()
  }
  buffer.trim()
  assert.deepEqual([buffer.lineCount, buffer.first, buffer.end], [100_000, 900_000, 1_000_000])
  assert.equal(buffer.get(900_000)?.text, 'line 900000')
  assert.equal(buffer.heights.total, 100_000)
})

test('long lines count more: the buffer is limited in size as well', () => {
  const buffer = bufferOf(100_000)
  for (let at = 0; at < 1000; at++) append(buffer, 'x'.repeat(100_000))
  buffer.trim()
  assert.ok(buffer.lineCount < 500)
  assert.ok(buffer.lineCount > 300)
})

test('search counts matching entries while lines are added and removed', () => {
  const buffer = bufferOf(100)
  for (let at = 0; at < 100; at++) append(buffer, at % 10 === 0 ? `an Error ${at}` : `line ${at}`)
  const search = new LineSearch(buffer, literalPattern('error'))
  search.scan()
  assert.deepEqual(
    [search.count, search.next(0), search.next(90), search.previous(90), search.previous(0)],
    [10, 10, 0, 80, 90],
  )
  assert.deepEqual([search.placeOf(0), search.placeOf(90), search.placeOf(91)], [1, 10, 0])
  const [last] = append(buffer, 'no match')
  assert.ok(last)
  buffer.trim()
  search.scan()
  assert.equal(search.count, 9)
  buffer.appendTo(last, '  at error')
  search.noteChange(last)
  search.noteChange(last)
  assert.deepEqual([search.count, search.placeOf(last.id)], [10, 10])
})

test('search works in slices of time', () => {
  const buffer = bufferOf(10_000)
  for (let at = 0; at < 10_000; at++) append(buffer, 'error')
  const search = new LineSearch(buffer, literalPattern('error'))
  assert.equal(
    search.scan(0, () => 1),
    false,
  )
  assert.equal(search.count, 64)
  while (!search.scan(0, () => 1)) assert.ok(search.count < 10_000)
  assert.equal(search.count, 10_000)
})

test('a search ignores case unless it has capitals, and takes signs literally unless it is an expression', async () => {
  assert.deepEqual(literalPattern('error').matches('Error: a.b ERROR'), [
    [0, 5],
    [11, 16],
  ])
  assert.deepEqual(literalPattern('ERROR').matches('Error ERROR'), [[6, 11]])
  assert.deepEqual(literalPattern('a.b').matches('a.b axb'), [[0, 3]])
  const expression = await expressionPattern('a.b')
  assert.equal(expression.matches('a.b axb').length, 2)
  await assert.rejects(expressionPattern('('), /missing closing/)
  assert.deepEqual((await expressionPattern('x*')).matches('abc'), [])
})

test('a match is found and marked across the colours of a line', () => {
  const line = `${ESC}[31mfail${ESC}[0mure of ${ESC}[1;32mx${ESC}[0m`
  const buffer = bufferOf()
  append(buffer, line)
  const search = new LineSearch(buffer, literalPattern('failure'))
  search.scan()
  assert.equal(search.count, 1)
  const pieces = piecesOf(line, search.pattern)
  assert.deepEqual(
    pieces.map(({ className, isMatch, text }) => [text, className, isMatch]),
    [
      ['fail', 'ansi-red', true],
      ['ure', '', true],
      [' of ', '', false],
      ['x', 'ansi-bold ansi-green', false],
    ],
  )
})

test('escape sequences that are not colours, and invisible characters, cannot change the page', () => {
  const hostile = `${ESC}[2J${ESC}[1;1H${ESC}]8;;javascript:alert(1)${ESC}\\x${ESC}]0;title\u0007<b>\u202e\u0000\r`
  assert.equal(shownText(hostile), 'x<b>\ufffd\u2400\u240d')
  assert.equal(
    piecesOf(hostile, undefined)
      .map(({ text }) => text)
      .join(''),
    'x<b>\ufffd\u2400\u240d',
  )
  const numbers = piecesOf(`${ESC}[38;5;196ma${ESC}[48;2;999;0;0mb`, undefined)
  assert.deepEqual(
    numbers.map(({ background, color }) => [color, background]),
    [
      ['rgb(255 0 0)', undefined],
      ['rgb(255 0 0)', 'rgb(255 0 0)'],
    ],
  )
})

test('JSON has colours in one line, and is formatted when it is opened', () => {
  const line = '{"level":"error","n":1,"text":"a \\"b\\": c"}'
  const pieces = piecesOf(line, undefined)
  assert.equal(pieces.map(({ text }) => text).join(''), line)
  assert.deepEqual(
    pieces.filter(({ className }) => className !== 'json-sign').map(({ className }) => className),
    ['json-key', 'json-text', 'json-key', 'json-value', 'json-key', 'json-text'],
  )
  const lines = formattedJson('{"a":[1]}', literalPattern('1'))
  assert.equal(lines?.map((each) => each.map(({ text }) => text).join('')).join('|'), '{|  "a": [|    1|  ]|}')
  assert.deepEqual(lines?.[2]?.at(-1), { text: '1', className: 'json-value', isMatch: true })
  assert.equal(formattedJson('{"a":', undefined), undefined)
  assert.equal(formattedJson('plain', undefined), undefined)
})

test('a long line is cut until it is opened', () => {
  const pieces = piecesOf('x'.repeat(5000), undefined)
  assert.deepEqual([pieces[0]?.text.length, pieces[1]?.text], [4000, ' … 1000 more characters'])
  assert.equal(piecesOf('x'.repeat(5000), undefined, true)[0]?.text.length, 5000)
})

test('columns count what is shown', () => {
  assert.equal(columnsOf('abc'), 3)
  assert.equal(columnsOf(`${ESC}[31mabc${ESC}[0m`), 3)
  assert.equal(columnsOf('a\tb'), 9)
  assert.equal(columnsOf('日本'), 4)
})

test('levels are named at the beginning of a line', () => {
  assert.equal(levelOf('2026 ERROR x'), 'bad')
  assert.equal(levelOf('{"level":"error","msg":"x"}'), 'bad')
  assert.equal(levelOf('E1128 12:00:00 x'), 'bad')
  assert.equal(levelOf('level=warn x'), 'warning')
  assert.equal(levelOf('INFO 0 errors'), undefined)
  assert.equal(levelOf(`${ESC}[41;97mERROR${ESC}[0m refused`), 'bad')
  assert.equal(levelOf(`${ESC}[33mWARN${ESC}[0m slow`), 'warning')
})

test('times at the beginning of lines are recognised', () => {
  const at = Date.UTC(2026, 10, 21, 10, 0, 0, 123)
  const now = new Date(Date.UTC(2026, 10, 28))
  assert.equal(timeOfLine('2026-11-21T10:00:00.123Z x'), at)
  assert.equal(timeOfLine('[2026-11-21 12:00:00,123 +0200] x'), at)
  assert.equal(timeOfLine('{"time":"2026-11-21T10:00:00.123456Z"}'), at)
  assert.equal(timeOfLine('{"ts":1795255200.123}'), at)
  assert.equal(timeOfLine('1795255200123 x'), at)
  assert.equal(timeOfLine('time="2026-11-21T10:00:00.123Z" level=info'), at)
  assert.equal(timeOfLine('Nov 21 10:00:00 host x', now), new Date(2026, 10, 21, 10).getTime())
  assert.equal(timeOfLine('I1121 10:00:00.123456 1 x', now), new Date(2026, 10, 21, 10, 0, 0, 123).getTime())
  assert.equal(timeOfLine('Dec 31 10:00:00 host x', now), new Date(2025, 11, 31, 10).getTime())
  assert.equal(timeOfLine('request 12345'), undefined)
})

test('what was written before is in the order of its times, and logs without times are last', () => {
  const backlog = new Backlog()
  const push = (task: string, ...texts: string[]) => {
    const log = { ...LOG, task }
    for (const text of texts) backlog.push({ log, text, file: '', endOffset: 0 })
  }
  push('plain', 'no time')
  push('a', '2026-11-21T10:00:00Z a1', '  more', '2026-11-21T10:00:03Z a2', '2026-11-21T10:00:01Z a3')
  push('b', '2026-11-21T10:00:02Z b1')
  assert.deepEqual(
    backlog.take().map(({ text }) => text.split(' ').at(-1)),
    ['a1', 'more', 'b1', 'a2', 'a3', 'time'],
  )
  assert.deepEqual(backlog.take(), [])
})

test('a line has an address that another tail finds', () => {
  const buffer = bufferOf()
  const entry = buffer.append({ source: SOURCE, text: 'x', file: 'web.stdout.3', endOffset: 77, receivedMs: 0 })
  const target = { kind: 'task', allocation: 'a1', task: 'web' } as const
  for (const isFiltered of [false, true]) {
    const link = linkToLine(target, entry, { isFiltered, type: '*', cursor: 'c1', start: '' })
    const query = new URL(link, 'http://x').searchParams
    const address = parseLineAddress(query.get('line') ?? '')
    assert.ok(address)
    assert.ok(isAddressOf(address, entry))
    assert.deepEqual(parseLineAddress(formatLineAddress(address)), address)
    const [other] = append(buffer, 'y')
    assert.ok(other)
    assert.equal(isAddressOf(address, other), false)
    const { isFollowing, selection } = parseTailQuery(query)
    assert.deepEqual([isFollowing, selection.cursor], [false, 'c1'])
  }
  assert.equal(parseLineAddress('x'), undefined)
})

test('a query selects the start: the last lines, or the whole log with a filter', () => {
  assert.equal(parseTailQuery(new URLSearchParams()).selection.lines, 1000)
  assert.equal(parseTailQuery(new URLSearchParams('grep=x')).selection.lines, undefined)
  assert.equal(parseTailQuery(new URLSearchParams('lines=999999999')).selection.lines, 100_000)
  assert.deepEqual(parseTailQuery(new URLSearchParams('since=1h')).isFollowing, false)
})

test('the wall keeps at most nine tails in its path', () => {
  const tails = Array.from({ length: 12 }, (_, at) => ({ kind: 'task', allocation: `a${at}`, task: 'x/y' }) as const)
  const query = new URL(wallPath(tails, 2), 'http://x').searchParams
  assert.equal(query.get('max'), '2')
  assert.deepEqual(tailsOf(query), tails.slice(0, 9))
  rememberTails(tailsOf(query))
  const [first, ...others] = tails.slice(0, 9)
  const added = tailsOf(new URL(wallPathWith({ kind: 'allocation', allocation: 'b' }), 'http://x').searchParams)
  assert.deepEqual(added, [first, ...others.slice(0, 7), { kind: 'allocation', allocation: 'b' }])
})

function taskState(state: string, finishedAt: string | null, isFailed = false) {
  return { Events: null, Failed: isFailed, FinishedAt: finishedAt, Restarts: 0, StartedAt: null, State: state } as never
}

function allocationOf(id: string, status: string, tasks: Record<string, never>, names: object = {}) {
  return {
    ClientDescription: '',
    ClientStatus: status,
    CreateTime: 0,
    DesiredStatus: 'run',
    ID: id,
    JobID: 'shop',
    ModifyTime: 1,
    Name: `shop.${id}`,
    Namespace: 'default',
    NodeID: '',
    NodeName: `host-${id}`,
    TaskGroup: '',
    TaskStates: tasks,
    ...names,
  } as never
}

test('the list has tasks, allocations and jobs, the last event first, and finds failed ones', () => {
  const all = [
    allocationOf('a', 'running', { web: taskState('running', null), side: taskState('dead', '2026-11-21T10:00:00Z') }),
    allocationOf('b', 'failed', { web: taskState('dead', '2026-11-21T11:00:00Z', true) }),
  ]
  const tasks = rowsOf(all, 'tasks')
  assert.deepEqual(
    tasks.map(({ path, state }) => [path, state]),
    [
      ['b/web', 'failed'],
      ['a/side', 'complete'],
      ['a/web', 'running'],
    ],
  )
  assert.deepEqual(
    filterRows(tasks, '', 'failed').map(({ path }) => path),
    ['b/web'],
  )
  assert.deepEqual(
    filterRows(tasks, 'HOST-a web', 'all').map(({ path }) => path),
    ['a/web'],
  )
  const [job] = rowsOf(all, 'jobs')
  assert.deepEqual(
    [job?.path, job?.of, job?.host, job?.isFailed],
    ['job/default/shop', '1 of 2 running, 1 failed', '2 hosts', true],
  )
})

function namedAllocation(id: string, Name: string, NodeName: string) {
  return allocationOf(id, 'running', {}, { Name, NodeName })
}

test('allocations with one name are told apart by their hosts, and on one host by their IDs', () => {
  const names = namesOf([
    namedAllocation('11111111-a', 'shop.web[0]', 'w1'),
    namedAllocation('22222222-b', 'shop.web[0]', 'w2'),
    namedAllocation('33333333-c', 'shop.web[0]', 'w2'),
    namedAllocation('44444444-d', 'shop.web[1]', 'w2'),
  ])
  assert.deepEqual(
    [...names.values()],
    ['w1 shop.web[0]', 'w2 shop.web[0] 22222222', 'w2 shop.web[0] 33333333', 'shop.web[1]'],
  )
})

test('a task that has ended has one word for its state, and numbers have the right noun', () => {
  assert.deepEqual(
    [
      { State: 'dead' as const, Failed: false },
      { State: 'dead' as const, Failed: true },
      { State: 'running' as const, Failed: false },
    ].map(wordOf),
    ['complete', 'failed', 'running'],
  )
  assert.deepEqual(
    [0, 1, 2, 1234].map((count) => counted(count, 'allocation')),
    ['0 allocations', '1 allocation', '2 allocations', '1,234 allocations'],
  )
})
