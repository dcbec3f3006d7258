/** Runs the section on the login of an agent in docs/operating/programs.md as pasted into a shell and a file. */
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { ROOT } from '../cli/outpost-process.ts'
import { workDirectory } from '../helpers/agent-process.ts'
import { runShell, shellBlocks } from '../helpers/document.ts'
import { quietPort } from '../helpers/quiet-port.ts'

const PAGE = 'docs/operating/programs.md'
const HEADING = '## Agent login'

test('an agent logs in as documented, and a program reads its secret', async (t) => {
  const directory = workDirectory(t)
  const [role, program, ...more] = shellBlocks(PAGE, HEADING)
  const section = readFileSync(join(ROOT, PAGE), 'utf8').split(`${HEADING}\n`)[1] ?? ''
  const block = /```hcl\n([^]*?)```/.exec(section)?.[1]
  assert.ok(role && program && block && more.length === 0)
  const [port, agentPort] = [await quietPort(), await quietPort()]
  const host = join(directory, 'host')
  mkdirSync(host)
  const configured = block
    .replaceAll('/etc/outpost', host)
    .replace(/address +=.*/, `address = "http://127.0.0.1:${port}"`)
    .replace(/^ *ca_file.*\n/m, '')
  const config = `data_dir = "${host}/data"\nports { http = ${agentPort} }\nclient { enabled = true }\nacl { enabled = false }\n${configured}`
  const ready = `curl -sf http://127.0.0.1:${agentPort}/v1/agent/ready`
  const script = [
    `outpost agent -config ${host}/agent.hcl > agent.log 2>&1 & agent=$!`,
    `outpost agent -dev -dev-no-demo -dev-root-token-id root -http-port ${port} -cluster-port 0 > server.log 2>&1 &`,
    `trap 'kill $agent; wait $agent; kill $!; wait' EXIT`,
    'until outpost status > /dev/null 2>&1; do sleep 0.1; done',
    'printf root | outpost login -no-print -',
    'outpost kv put secret/app password=twelve-chars',
    role,
    `mv role-id secret-id ${host}/`,
    // A program of the host, whose user has no token.
    'rm "$HOME/.outpost-token"',
    `for _ in $(seq 600); do ${ready} && break; sleep 0.1; done`,
    `unset OUTPOST_ADDR; export OUTPOST_DATA_DIR=${host}/data`,
    program,
  ]
  const text = `cat > ${host}/agent.hcl <<'EOT'\n${config}\nEOT\n${script.join('\n')}`
  const { code, stderr, stdout } = await runShell(directory, port, text)
  const logs = ['server.log', 'agent.log'].map((name) => readFileSync(join(directory, name), 'utf8').slice(-3000))
  assert.equal(code, 0, `${stderr}\n${stdout}\n${logs.join('\n')}`)
  assert.match(stdout, /"name":"secrets-login","state":"ok","reason":"logged in, token TTL \d+ s"/)
  assert.match(stdout, /^the password has 12 characters$/m)
})
