import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { runHere } from '../../../helpers/command-here.ts'
import { type Finished, outpost, temporaryDirectory } from '../../outpost-process.ts'

async function check(...args: string[]): Promise<{ code: number | null; stderr: string; lines: string[] }> {
  return linesOf(await runHere(['policy', 'check', ...args], process.env))
}

function linesOf({ code, stderr, stdout }: Finished) {
  return { code, stderr, lines: stdout.trimEnd().split('\n') }
}

test('policy check prints the deciding rule and exits by the decision', async (t) => {
  const directory = temporaryDirectory(t)
  const file = join(directory, 'app.hcl')
  const more = join(directory, 'more.hcl')
  const broken = join(directory, 'broken.hcl')
  writeFileSync(
    file,
    'path "kv/*" { capabilities = ["read"] }\npath "kv/a" { capabilities = ["update"] allowed_parameters = { "n" = [1] "s" = ["1"] } }\npath "kv/x*y" { capabilities = ["read"] }\npath "me/{{identity.entity.name}}" { capabilities = ["read"] }\n',
  )
  writeFileSync(more, 'path "kv/*" { capabilities = ["deny"] }\n')
  writeFileSync(broken, 'path "kv/a" { capabilities = ["red"] }\n')
  const allowed = linesOf(await outpost('policy', 'check', file, 'kv/b', 'read'))
  assert.deepEqual(allowed, {
    code: 0,
    lines: [
      'allowed: read "kv/b"',
      `  ${file}:1:6: path "kv/*": decides, grants read`,
      '  3 rules do not match (-all shows why)',
    ],
    stderr: `warning: ${file}:3:6: a * that is not at the end is a literal character; use + for one segment\n`,
  })
  const denied = await check(file, '/v1/kv/a', 'READ', '-all')
  assert.equal(denied.code, 1)
  assert.deepEqual(denied.lines.slice(0, 3), [
    'denied: read "kv/a"',
    `  ${file}:2:6: path "kv/a": decides, does not grant read`,
    `  ${file}:1:6: path "kv/*": a rule for exactly this path takes precedence`,
  ])
  assert.equal(denied.lines.length, 5)
  assert.equal((await check(file, 'kv/b', 'read', '-with', more)).code, 1)
  assert.equal((await check('-data', 'n=1', '-data', 's="1"', file, 'kv/a', 'update')).code, 0)
  assert.equal((await check('-data', 'n=2', file, 'kv/a', 'update')).code, 1)
  assert.equal((await check(file, 'me/alice', 'read')).code, 1)
  assert.equal((await check(file, 'me/alice', 'read', '-entity', 'name=alice')).code, 0)

  const faulty = await check(broken, 'kv/a', 'read')
  assert.deepEqual([faulty.code, faulty.lines], [2, ['']])
  assert.match(faulty.stderr, new RegExp(`^${broken}:1:31: path "[^"]+": unknown capability "`))
  for (const args of [
    [file, 'kv/a', 'red'],
    [file, 'kv/a'],
    [join(directory, 'none.hcl'), 'kv/a', 'read'],
    [file, 'kv/a', 'read', '-data', 'x'],
  ]) {
    const { code, lines, stderr } = await check(...args)
    assert.deepEqual([code, lines], [2, ['']], args.join(' '))
    assert.match(stderr, /^outpost: [^\n]+\n$/)
  }
})
