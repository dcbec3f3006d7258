/** Runs the sections on logins of docs/operating/auth.md as pasted into a shell. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { workDirectory } from '../helpers/agent-process.ts'
import { runShell, shellBlocks } from '../helpers/document.ts'
import { quietPort } from '../helpers/quiet-port.ts'

const PAGE = 'docs/operating/auth.md'

test('programs and people log in by the documented steps', async (t) => {
  const directory = workDirectory(t)
  const [role, program, people, ...more] = shellBlocks(PAGE, '## Auth methods')
  const [groups, ...moreGroups] = shellBlocks(PAGE, '## Entities and groups')
  assert.ok(role && program && people && groups && more.length === 0 && moreGroups.length === 0)
  const port = await quietPort()
  const begin = [
    `outpost agent -dev -dev-no-demo -dev-root-token-id root -http-port ${port} -cluster-port 0 > server.log 2>&1 &`,
    'until curl -sf "$OUTPOST_ADDR/v1/agent/ready" > /dev/null; do sleep 0.1; done',
  ]
  // Each of them as root again: a login keeps the token that it gets.
  const asRoot = 'printf root | outpost login -no-print -'
  const script = [...begin, asRoot, role, program, 'outpost token lookup', asRoot, people, asRoot, groups].join('\n')
  const { code, stderr, stdout } = await runShell(directory, port, script)
  assert.equal(code, 0, `${stderr}\n${readFileSync(join(directory, 'server.log'), 'utf8')}`)
  assert.match(stdout, /^path +auth\/approle\/login$/m)
  assert.match(stdout, /^policies +\[?"?default"?,? "?web"?\]?$/m)
  assert.match(stdout, /^token_meta_username +alice$/m)
})
