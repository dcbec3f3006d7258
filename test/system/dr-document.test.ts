/** Runs docs/operating/dr.md as pasted into a shell. */
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { workDirectory } from '../helpers/agent-process.ts'
import { runShell, shellBlocks } from '../helpers/document.ts'
import { DrServer } from '../helpers/dr-pair.ts'

const PAGE = 'docs/operating/dr.md'

test('a secondary is added, switched with its primary and back, and takes over by the documented steps', {
  timeout: 280_000,
}, async (t) => {
  const directory = workDirectory(t)
  const [a, b] = await Promise.all([DrServer.start(t, 'a', '', directory), DrServer.start(t, 'b', '', directory)])
  const blocks = ['## Add a secondary', '## Switch the roles', '## Fail over'].map((heading) =>
    shellBlocks(PAGE, heading),
  )
  assert.deepEqual(
    blocks.map(({ length }) => length),
    [1, 1, 1],
  )
  const [activate = '', change = '', failover = ''] = blocks.flat()
  writeFileSync(join(directory, 'shares.txt'), `${a.keys.shares.join('\n')}\n`)
  const between = (primary: DrServer, secondary: DrServer) =>
    [
      `PRIMARY=${primary.agent.url} PRIMARY_TOKEN=${a.keys.token}`,
      `SECONDARY=${secondary.agent.url} SECONDARY_TOKEN=${b.keys.token}`,
      // It ends what was left in the background: nothing here.
      'sleep 0 &',
    ].join('\n')
  await a.told('POST', 'cubbyhole/kept', { a: '1' })
  const first = await runShell(directory, b.agent.port, `${between(a, b)}\n${activate}`)
  assert.equal(first.code, 0, first.stderr)
  assert.match(first.stdout, /^Mode +secondary$/m)
  for (const [primary, secondary] of [
    [a, b],
    [b, a],
  ] as const) {
    const changed = await runShell(directory, b.agent.port, `${between(primary, secondary)}\n${change}`)
    assert.equal(changed.code, 0, changed.stderr)
  }
  await a.kill()
  const second = await runShell(directory, b.agent.port, `${between(a, b)}\n${failover}`)
  assert.equal(second.code, 0, second.stderr)
  assert.match(second.stderr, /^5\. Promoted to primary of epoch/m)
  assert.deepEqual((await b.told('GET', 'cubbyhole/kept', undefined, a.keys.token)).data, { a: '1' })
  assert.ok(!readFileSync(join(directory, 'activation.txt'), 'utf8').includes(a.keys.token))
})
