import assert from 'node:assert/strict'
import { test } from 'node:test'
import { HclError, labelledBlocks, parseHcl, parseText } from '../../src/config/hcl.ts'
import type { HclNode } from '../../src/config/hcl.ts'

/** The tree without places, as plain values; a block with labels is `[key, labels, value]`. */
function plain(node: HclNode): unknown {
  if (node.kind === 'null') return null
  if (node.kind === 'list') return node.items.map(plain)
  if (node.kind !== 'object') return node.value
  return node.entries.map(({ key, labels, value }) =>
    labels.length > 0 ? [key, labels.map((label) => label.text), plain(value)] : [key, plain(value)],
  )
}

function valueOf(text: string): unknown {
  const [entry] = parseHcl(`a = ${text}`).entries
  assert.ok(entry)
  return plain(entry.value)
}

function faultOf(text: string, parse = parseText): HclError {
  try {
    parse(text)
  } catch (error) {
    assert.ok(error instanceof HclError, String(error))
    return error
  }
  throw new assert.AssertionError({ message: `no fault in ${text}` })
}

const says = (text: string) => {
  const { at, message } = faultOf(text)
  return `${at.line}:${at.column} ${message}`
}

test('parses several settings on one line', () => {
  assert.deepEqual(plain(parseHcl('name = "s1"  data_dir = "/x"\tbind_addr = "127.0.0.1"')), [
    ['name', 's1'],
    ['data_dir', '/x'],
    ['bind_addr', '127.0.0.1'],
  ])
  assert.deepEqual(
    plain(parseHcl('ports { http = 4646  cluster = 4647 } client { enabled = true  meta { rack = "r1" } }')),
    [
      [
        'ports',
        [
          ['http', 4646],
          ['cluster', 4647],
        ],
      ],
      [
        'client',
        [
          ['enabled', true],
          ['meta', [['rack', 'r1']]],
        ],
      ],
    ],
  )
  assert.deepEqual(plain(parseHcl('a = {b = 1, c = 2,}, d = 3')), [
    [
      'a',
      [
        ['b', 1],
        ['c', 2],
      ],
    ],
    ['d', 3],
  ])
})

test('parses values of every kind', () => {
  const values: [string, unknown][] = [
    ['0', 0],
    ['-7', -7],
    ['0x1F', 31],
    ['-0xff', -255],
    ['2.50', 2.5],
    ['1e3', 1000],
    ['1.5e-3', 0.0015],
    ['2E+2', 200],
    ['true', true],
    ['false', false],
    ['[]', []],
    ['[1, "b", [true], {c = 1},]', [1, 'b', [true], [['c', 1]]]],
    ['{}', []],
    ['""', ''],
    ['"\\n\\t\\"\\\\\\r\\x41\\u00e9\\U0001F600\\ud83d\\ude00"', '\n\t"\\\rAé😀😀'],
    ['"${env("HOME")} $x $"', '${env("HOME")} $x $'],
    ['"${a{b}c}"', '${a{b}c}'],
    ['<<EOT\n one\n\ntwo\nEOT', ' one\n\ntwo\n'],
    ['<<EOT\r\none\r\nEOT\r\n', 'one\n'],
    ['<<EOT\n  EOT', ''],
    ['<<-EOT\n    a\n\n      b\n    EOT', 'a\n\n  b\n'],
    ['[<<A\nx\nA\n, 2]', ['x\n', 2]],
  ]
  for (const [text, value] of values) assert.deepEqual(valueOf(text), value, text)
})

test('keeps keys, labels, order and repetition, and skips comments', () => {
  const text = `
# one
// two
/* three
   /* not nested */
"quoted.key" = 1 # after
plain-key.x = 2
ünïcode = 3
token "ops" second {}
token "dev" { a = 1 /* inside */ }
token "ops" { }
`
  assert.deepEqual(plain(parseHcl(text)), [
    ['quoted.key', 1],
    ['plain-key.x', 2],
    ['ünïcode', 3],
    ['token', ['ops', 'second'], []],
    ['token', ['dev'], [['a', 1]]],
    ['token', ['ops'], []],
  ])
  assert.deepEqual(plain(parseHcl('\uFEFFa = 1')), [['a', 1]])
  assert.deepEqual(plain(parseHcl('')), [])
})

test('every node has its position', () => {
  const tree = parseHcl('a = 1\n  token "x" {\n    b = [true,\n "s"]\n  }\nc = <<-EOT\n      t\n    EOT\n')
  const [a, token, c] = tree.entries
  assert.deepEqual(
    [a?.keyAt, a?.value.at],
    [
      { line: 1, column: 1 },
      { line: 1, column: 5 },
    ],
  )
  assert.deepEqual(
    [token?.keyAt, token?.labels[0]?.at, token?.value.at],
    [
      { line: 2, column: 3 },
      { line: 2, column: 9 },
      { line: 2, column: 13 },
    ],
  )
  assert.ok(token?.value.kind === 'object')
  const list = token.value.entries[0]?.value
  assert.ok(list?.kind === 'list')
  assert.deepEqual(
    list.items.map((item) => item.at),
    [
      { line: 3, column: 10 },
      { line: 4, column: 2 },
    ],
  )
  assert.ok(c?.value.kind === 'string')
  assert.deepEqual(
    [c.value.at, c.value.bodyAt],
    [
      { line: 6, column: 5 },
      { line: 7, column: 7 },
    ],
  )
})

test('a fault has its position and the expected token', () => {
  const faults: [string, string][] = [
    ['a', '1:2 expected `=` or `{` after "a", found the end of the text'],
    ['a\nb = 1', '2:1 expected `=` or `{` after "a", found an unquoted word'],
    ['a b = 1', '1:5 expected `{` after the label of "a", found `=`'],
    ['a =', '1:4 expected a value (a string, number, true, false, list or object), found the end of the text'],
    ['a = yes', '1:5 expected a value, found an unquoted word: put strings in double quotes'],
    ['a = 5m', '1:5 not a number: put strings and durations in double quotes'],
    ['a = 0755', '1:5 not a number: put strings and durations in double quotes'],
    ['a = 1.2.3', '1:5 not a number: put strings and durations in double quotes'],
    ['a = -', '1:5 not a number: put strings and durations in double quotes'],
    ['a = 9007199254740993', '1:5 the number is too large'],
    ['a = 1e999', '1:5 the number is too large'],
    ['a = "x', '1:7 expected `"` to end the string that begins at 1:5'],
    ['a = "x\n"', '1:7 expected `"` to end the string that begins at 1:5'],
    ['a = "\\q"', '1:6 unknown escape: expected one of \\n \\t \\r \\" \\\\ \\xHH \\uHHHH'],
    ['a = "\\u12"', '1:6 expected 4 hexadecimal digits'],
    ['a = "\\ud800"', '1:6 unpaired surrogate'],
    ['a = "\\U00110000"', '1:6 not a Unicode character'],
    ['a = "${x"', '1:6 expected `}` to close this `${` (write \\u0024{ for the literal text)'],
    ['a = [1 2]', '1:8 expected `,` or `]` in a list, found a number'],
    ['a = [1', '1:7 expected `,` or `]` in a list, found the end of the text'],
    ['a = [1,', '1:8 expected `]` to close the list opened at 1:5'],
    ['a = [,]', '1:6 expected a value (a string, number, true, false, list or object), found `,`'],
    ['a {\n b = 1\n', '3:1 expected `}` to close what was opened at 1:3'],
    ['a = 1 }', '1:7 unexpected `}`'],
    ['a = "x"b = 1', '1:8 expected a space, a comma or a new line before the next setting, found an unquoted word'],
    ['a = "x" "planted"', '1:18 expected `=` or `{` after this name, found the end of the text'],
    ['password "planted"', '1:19 expected `{` after the label of "password", found the end of the text'],
    ['a = 1,, b = 2', '1:7 expected the name of a setting, found `,`'],
    ['= 1', '1:1 expected the name of a setting, found `=`'],
    ['a = <<EOT x\nEOT', '1:5 expected `<<NAME` or `<<-NAME` at the end of the line'],
    ['a = <<EOT\nabc\n', '1:5 expected a line with only EOT, to end the heredoc that begins here'],
    ['a = 1\n/* x', '2:1 expected `*/` to end the comment that begins here'],
    ['a = \u0001', '1:5 expected a value (a string, number, true, false, list or object), found the character U+0001'],
  ]
  for (const [text, expected] of faults) assert.equal(says(text), expected, text)
})

test('refuses nesting above the limit', () => {
  assert.doesNotThrow(() => parseHcl(`a = ${'['.repeat(100)}${']'.repeat(100)}`))
  assert.match(says(`a = ${'['.repeat(101)}${']'.repeat(101)}`), /nest deeper than 100/)
  assert.match(says('a {'.repeat(100_000)), /nest deeper than 100/)
  assert.match(says(`{"a":${'['.repeat(100_000)}`), /nest deeper than 100/)
})

test('finds labeled blocks in every notation', () => {
  const written = [
    'token "ops" { a = 1 }',
    'token = { ops = { a = 1 } }',
    '{"token": {"ops": {"a": 1}}}',
    '{"token": [{"ops": [{"a": 1}]}]}',
  ]
  for (const text of written) {
    const [entry] = parseText(text).entries
    assert.ok(entry)
    const blocks = labelledBlocks(entry)
    assert.deepEqual(
      blocks?.map(({ label, value, rest }) => [label, plain(value), rest]),
      [['ops', [['a', 1]], []]],
      text,
    )
  }
  const [bare] = parseHcl('token = 5').entries
  assert.ok(bare)
  assert.equal(labelledBlocks(bare), undefined)
})

/** A small generator of its own, so that a failure can be repeated from its seed. */
function randomFrom(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}

const PIECES = [
  'a',
  'key',
  'true',
  '=',
  '=',
  '{',
  '}',
  '{',
  '}',
  '[',
  ']',
  ',',
  '"',
  '"s"',
  '"x" ',
  '\\',
  '\\n',
  '\\u00',
  '${',
  '#',
  '//',
  '/*',
  '*/',
  '<<',
  '<<E\n',
  '<<-E\n',
  '\nE\n',
  '\n',
  ' ',
  ' ',
  '-',
  '0x',
  '1',
  '2.5',
  '1e',
  ':',
  'null',
  '\u0000',
  '\ud800',
  'é',
  '😀',
]

test('the parsers end on random texts and throw only HclError', () => {
  const valid = 'name = "s"  a { b = [1, "x"] } token "o" { p = <<-E\n  t\n  E\n}\n/* c */ d = -1.5'
  const json = '{"a": [1, "x", {"b": null}], "c": true}'
  for (let seed = 1; seed <= 4000; seed++) {
    const random = randomFrom(seed)
    const pick = (count: number) => Math.floor(random() * count)
    let text = ''
    if (seed % 2 === 0) for (let n = pick(40); n >= 0; n--) text += PIECES[pick(PIECES.length)] ?? ''
    else {
      const base = seed % 4 === 1 ? valid : json
      const at = pick(base.length)
      text = base.slice(0, at) + (PIECES[pick(PIECES.length)] ?? '') + base.slice(at + pick(4))
    }
    for (const parse of [parseHcl, parseText]) {
      try {
        parse(text)
      } catch (error) {
        if (!(error instanceof HclError)) throw new Error(`seed ${seed}: ${JSON.stringify(text)}`, { cause: error })
        const lines = text.split('\n')
        const line = lines[error.at.line - 1]
        assert.ok(line !== undefined && error.at.column >= 1 && error.at.column <= line.length + 2, `seed ${seed}`)
      }
    }
  }
})

test('parses or refuses half a megabyte of garbage in linear time', () => {
  const garbage = [
    '[',
    '{',
    'a{',
    'a=1 ',
    'a "b" ',
    '"${',
    '<<-A\n',
    'a = <<E\n E x\n',
    '/*',
    '# ',
    '\\',
    '0',
    '\n',
    'a',
    '"',
  ]
  for (const piece of garbage) {
    const text = piece.repeat(Math.ceil((1 << 19) / piece.length))
    for (const full of [text, `a = ${text}`, `a = "${text}`, `{${text}`]) {
      const begun = process.cpuUsage()
      try {
        parseText(full)
      } catch (error) {
        assert.ok(error instanceof HclError)
      }
      // Of the processor, which other work takes nothing from: quadratic time is seconds, linear time 0.1 s at most.
      assert.ok(process.cpuUsage(begun).user < 2_000_000, JSON.stringify(piece))
    }
  }
})
