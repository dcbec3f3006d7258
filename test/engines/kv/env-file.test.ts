/** `.env` files: what was written is read again, what others write is read as they mean it, and long lines cost little. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Rejection } from '../../../src/engines/framework/engine.ts'
import { envText, parseEnv } from '../../../src/engines/kv/store/env-file.ts'
import { Random } from '../../helpers/frames.ts'

const CHARACTERS = [
  'a',
  'B',
  '1',
  ' ',
  '\t',
  '\n',
  '\r',
  '"',
  "'",
  '\\',
  '$',
  '`',
  '#',
  '=',
  '€',
  '\u2028',
  '\u{1f600}',
  'n',
] as const

const many = (text: string) => text.repeat(4 << 20)

test('any text survives an export and import', () => {
  const seed = Number(process.env['OUTPOST_SEED'] ?? Date.now() % 2 ** 31)
  const random = new Random(seed)
  for (let round = 0; round < 3000; round++) {
    const text = () => Array.from({ length: random.between(0, 8) }, () => random.pick(CHARACTERS)).join('')
    const data = { A: text(), B_2: text(), _c: text() }
    const written = envText(data)
    assert.deepEqual(parseEnv(written), data, `OUTPOST_SEED=${seed}: ${JSON.stringify(written)}`)
    // As an editor of another system would keep it.
    assert.deepEqual(parseEnv(`\uFEFF# ${text().replaceAll(/[\r\n]/g, '')}\n\n${written}`), data)
  }
})

test('parses .env files of other programs as they intend', () => {
  const lines: [string, string][] = [
    ['A=x # comment', 'x'],
    ['A=x#no comment', 'x#no comment'],
    ['A=#x', '#x'],
    ['A= # comment', ''],
    ['A=', ''],
    ['export   A = x', 'x'],
    ['A=x=y', 'x=y'],
    [`A="x" # "comment"`, 'x'],
    [`A='x'   `, 'x'],
    [`A="a\\tb\\"c\\\\"`, 'a\tb"c\\'],
    [`A=it's`, "it's"],
    ['A=x\u2028y', 'x\u2028y'],
  ]
  for (const [line, value] of lines) assert.deepEqual(parseEnv(line), { A: value }, line)
  const bad = ['A', '=x', '1A=x', 'A B=x', `A="open`, `A="open\\`, `A='x' y`, `A="x"y`, `A='`, 'A"=x']
  for (const line of bad) {
    assert.throws(() => parseEnv(line), Rejection, line)
  }
})

test('parsing takes time linear in the length of a line', () => {
  assert.equal(parseEnv(`A=x${many(' ')}y`)['A']?.length, (4 << 20) + 2)
  assert.equal(parseEnv(`A=${many('#')}`)['A']?.length, 4 << 20)
  assert.equal(parseEnv(`A="${many('x')}"`)['A']?.length, 4 << 20)
  assert.equal(parseEnv(`A="${many('\\n')}"`)['A']?.length, 4 << 20)
  for (const line of [
    `A="x"${many(' ')}y`,
    `A${many(' ')}y`,
    `export${many(' ')}1=x`,
    `A="${many('x')}`,
    `A='x'${many('\t')}y`,
  ]) {
    assert.throws(() => parseEnv(line), Rejection)
  }
})
