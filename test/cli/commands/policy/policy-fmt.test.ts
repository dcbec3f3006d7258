import assert from 'node:assert/strict'
import { chmodSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { parseText } from '../../../../src/config/hcl.ts'
import { formatHcl } from '../../../../src/config/hcl-format.ts'
import { runHere } from '../../../helpers/command-here.ts'
import { OUTPOST, start, temporaryDirectory } from '../../outpost-process.ts'

const UNEVEN = `# { not a bracket
path   "secret/data/*" {
      capabilities=["read",
  "list"]   // [ neither
min_wrapping_ttl    =  "1s"
    max_wrapping_ttl="90s"   # = here
/* a comment
     of { two lines */
  allowed_parameters={
"a = {"=["x"]
      "b"   = []
      }


  comment = <<EOT
   kept {
     as it is = here
EOT
}
path "x" { capabilities = ["deny"] }
`
const EVEN = `# { not a bracket
path   "secret/data/*" {
  capabilities=["read",
    "list"]   // [ neither
  min_wrapping_ttl = "1s"
  max_wrapping_ttl = "90s"   # = here
  /* a comment
     of { two lines */
  allowed_parameters={
    "a = {" = ["x"]
    "b"     = []
  }

  comment = <<EOT
   kept {
     as it is = here
EOT
}
path "x" { capabilities = ["deny"] }
`

function bare(text: string): string {
  return JSON.stringify(parseText(text), (key, value: unknown) => (/^at$|At$/.test(key) ? undefined : value))
}

const fmt = (path: string) => runHere(['policy', 'fmt', path], process.env)

test('only white space changes, and a second run changes nothing', () => {
  assert.equal(formatHcl(UNEVEN), EVEN)
  assert.equal(formatHcl(EVEN), EVEN)
  assert.equal(bare(UNEVEN), bare(EVEN))
  assert.equal(formatHcl('path "x" {\r\ncapabilities = []\r\n}'), 'path "x" {\n  capabilities = []\n}\n')
})

test('a formatted file keeps its mode, and an invalid policy is not changed', async (t) => {
  const file = join(temporaryDirectory(t), 'p.hcl')
  writeFileSync(file, 'path "x" {\ncapabilities=["read"]\n}')
  chmodSync(file, 0o640)
  assert.deepEqual(await fmt(file), { code: 0, signal: null, stdout: '', stderr: '' })
  assert.equal(readFileSync(file, 'utf8'), 'path "x" {\n  capabilities = ["read"]\n}\n')
  assert.equal(statSync(file).mode & 0o777, 0o640)
  const piped = await start(OUTPOST, ['policy', 'fmt', '-'], { input: 'path "x" {\n\n\n}' }).finished
  assert.equal(piped.stdout, 'path "x" {\n\n}\n')
  for (const [text, message] of [
    ['path "x" {\n', /:2:1: /],
    [
      'path "x" { capabilities = ["reed"] }',
      /:1:28: path "x": unknown capability "reed", expected some of create, read/,
    ],
  ] as const) {
    writeFileSync(file, text)
    const { code, stderr } = await fmt(file)
    assert.equal(code, 1)
    assert.match(stderr, message)
    assert.equal(readFileSync(file, 'utf8'), text)
  }
  assert.equal((await fmt('/nowhere')).code, 2)
})
