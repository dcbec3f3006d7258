import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  choice,
  duration,
  flag,
  HelpRequest,
  integer,
  parseOptions,
  text,
  texts,
  UsageError,
} from '../../../src/cli/framework/options.ts'

const OPTIONS = {
  'http-port': integer({ placeholder: 'N', help: '', fallback: 4646, min: 0, max: 65_535 }),
  offset: integer({ placeholder: 'N', help: '', fallback: undefined, min: -10, max: 10 }),
  dev: flag(''),
  name: text({ placeholder: 'NAME', help: '', fallback: undefined }),
  config: texts('FILE', ''),
  level: choice({ placeholder: 'L', help: '', choices: ['info', 'warn'] }),
  wait: duration({ help: '', fallback: '30s', minMs: 1 }),
}
const NOTHING = {
  'http-port': 4646,
  offset: undefined,
  dev: false,
  name: undefined,
  config: [],
  level: undefined,
  wait: 30_000,
}

const accepted: [string[], object, string[]][] = [
  [[], {}, []],
  [['-http-port', '1'], { 'http-port': 1 }, []],
  [['-http-port=1'], { 'http-port': 1 }, []],
  [['--http-port', '0'], { 'http-port': 0 }, []],
  [['--http-port=65535'], { 'http-port': 65_535 }, []],
  [['-offset', '-5'], { offset: -5 }, []],
  [['-dev'], { dev: true }, []],
  [['-dev=false'], { dev: false }, []],
  [['-dev', 'a'], { dev: true }, ['a']],
  [['-name', 'a=b'], { name: 'a=b' }, []],
  [['-name=a=b'], { name: 'a=b' }, []],
  [['-name', '-odd'], { name: '-odd' }, []],
  [['-name', 'a', '-name', 'b'], { name: 'b' }, []],
  [['-config', 'a', '--config=b', '-config', 'c'], { config: ['a', 'b', 'c'] }, []],
  [['-level', 'WARN'], { level: 'warn' }, []],
  [['-wait', '1m30s'], { wait: 90_000 }, []],
  [['a', '-dev', 'b'], { dev: true }, ['a', 'b']],
  [['a', '--', '-dev', '--', 'b'], {}, ['a', '-dev', '--', 'b']],
  [['-'], {}, ['-']],
]
for (const [args, values, operands] of accepted) {
  test(`accepts ${JSON.stringify(args)}`, () => {
    const parsed = parseOptions(OPTIONS, args, 'anywhere')
    assert.deepEqual(parsed.values, { ...NOTHING, ...values })
    assert.deepEqual(parsed.operands, operands)
  })
}

test('after the first operand of a program, options are operands', () => {
  const parsed = parseOptions(OPTIONS, ['-dev', 'sleep', '-name', '--', 'x'], 'first')
  assert.deepEqual(parsed.operands, ['sleep', '-name', '--', 'x'])
  assert.deepEqual(parsed.values, { ...NOTHING, dev: true })
})

for (const args of [['-h'], ['-name', 'x', '--help'], ['-dev', '-help', 'x']]) {
  test(`asks for help: ${JSON.stringify(args)}`, () => {
    assert.throws(() => parseOptions(OPTIONS, args, 'first'), HelpRequest)
  })
}

test('help as an operand or a value of an option is not the help option', () => {
  assert.deepEqual(parseOptions(OPTIONS, ['-name', '-help', 'x', '-h'], 'first').operands, ['x', '-h'])
  assert.deepEqual(parseOptions(OPTIONS, ['--', '-h'], 'anywhere').operands, ['-h'])
})

const refused: [string[], RegExp][] = [
  [['-htp-port', '1'], /^unknown option "-htp-port", did you mean -http-port\?$/],
  [['--conf', 'x'], /^unknown option "-conf", did you mean -config\?$/],
  [['-zzzzzz'], /^unknown option "-zzzzzz"$/],
  [['-d'], /^unknown option "-d"/],
  [['-http-port'], /^missing value of option -http-port, usage: -http-port N$/],
  [['-name', '-dev'], /^missing value of option -name/],
  [['-name', '--'], /^missing value of option -name/],
  [['-name='], /^option -name: "" must not be empty$/],
  [['-http-port', 'x'], /^option -http-port: "x" must be a whole number from 0 to 65535$/],
  [['-http-port', '65536'], /must be a whole number/],
  [['-http-port', '1.5'], /must be a whole number/],
  [['-http-port=-1'], /must be a whole number/],
  [['-dev=maybe'], /^option -dev: "maybe" must be true or false$/],
  [['-level', 'loud'], /must be one of info, warn$/],
  [['-wait', '30'], /must be a duration such as 30s/],
  [['-wait', '0'], /must be at least 1 ms/],
  [['-constructor', 'x'], /^unknown option "-constructor"/],
  [['-__proto__', 'x'], /^unknown option "-__proto__"/],
]
for (const [args, message] of refused) {
  test(`refuses ${JSON.stringify(args)}`, () => {
    assert.throws(
      () => parseOptions(OPTIONS, args, 'anywhere'),
      (error) => error instanceof UsageError && message.test(error.message),
    )
  })
}

test('-json and -format=json mean the same, whichever of the two a command declares', () => {
  const withFlag = { json: flag('') }
  const withFormat = { format: choice({ placeholder: 'F', help: '', choices: ['table', 'json'] }) }
  const read = (options: typeof withFlag | typeof withFormat, ...args: string[]) =>
    parseOptions<typeof withFlag | typeof withFormat>(options, args, 'anywhere')
  assert.deepEqual(read(withFlag, '-format', 'json', 'x'), { values: { json: true }, operands: ['x'] })
  assert.deepEqual(read(withFlag, '-json', '-format=table').values, { json: false })
  assert.deepEqual(read(withFormat, '-json', 'x'), { values: { format: 'json' }, operands: ['x'] })
  assert.throws(() => read(withFlag, '-format=yaml'), new UsageError('option -format: must be one of table, json'))
  assert.throws(() => parseOptions({ name: OPTIONS.name }, ['-json'], 'anywhere'), /unknown option "-json"/)
  const other = { format: choice({ placeholder: 'F', help: '', choices: ['env', 'file'] }) }
  assert.throws(() => parseOptions(other, ['-json'], 'anywhere'), /unknown option "-json"/)
})
