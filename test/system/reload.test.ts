/** Reading the configuration again: by request, from a directory of files, and when it is wrong. */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { startAgent, workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { raw, answersIn, ask } from '../helpers/raw-http.ts'
import { eventually } from '../helpers/eventually.ts'

const RELOAD = '/v1/agent/reload'

function token(name: string, policy: string): string {
  const hash = execFileSync('sha256sum', { input: name }).toString().slice(0, 64)
  return `token "${name}" {\n sha256 = "${hash}"\n policy = "${policy}"\n}\n`
}

const agentPolicy = (access: string) => `agent { policy = \\"${access}\\" }`

test('PUT and POST apply the settings that can be reloaded and list the others', async (t) => {
  const directory = workDirectory(t)
  const tokens = (more = '') => `acl {\n${token('w', agentPolicy('write'))}${token('r', agentPolicy('read'))}${more}}\n`
  const agent = await startAgent(t, ['-config', writeConfig(directory, tokens())])
  const reload = (who: string, method = 'PUT') => ask(agent.port, method, RELOAD, `X-Nomad-Token: ${who}`)
  assert.equal((await reload('r')).status, 403)
  assert.equal((await reload('nobody')).status, 403)
  assert.equal((await reload('w', 'GET')).status, 405)
  assert.deepEqual(JSON.parse((await reload('w')).body.toString()), { NeedsRestart: [], Reloaded: [] })
  const limits = 'limits {\n http_max_body_bytes = 1024\n http_max_header_bytes = 2048\n}\nlog_level = "debug"\n'
  writeConfig(directory, tokens(token('n', 'node { policy = \\"write\\" }')) + limits)
  const answer = await reload('w', 'POST')
  assert.equal(answer.status, 200)
  assert.deepEqual(JSON.parse(answer.body.toString()), {
    NeedsRestart: ['limits.http_max_header_bytes'],
    Reloaded: ['log_level', 'acl.tokens', 'limits.http_max_body_bytes'],
  })
  const body = JSON.stringify({ Meta: { key: 'x'.repeat(2000) } })
  const post = `POST /v1/client/metadata HTTP/1.1\r\nHost: localhost\r\nX-Nomad-Token: n\r\nConnection: close\r\nContent-Length: ${body.length}\r\n\r\n${body}`
  const [tooLarge] = answersIn((await raw({ port: agent.port }, post)).bytes)
  assert.equal(tooLarge?.status, 413, 'the new token and the new limit')
})

test('an invalid configuration is answered with all its faults and changes nothing', async (t) => {
  const directory = workDirectory(t)
  const open = 'acl { enabled = false }\n'
  const file = writeConfig(directory, open)
  const agent = await startAgent(t, ['-config', file])
  writeConfig(directory, `${open}log_level = "loud"\nlimits { http_max_followers = -1 }\nodd = 1\n`)
  const wrong = await ask(agent.port, 'PUT', RELOAD)
  assert.equal(wrong.status, 400)
  const lines = wrong.body.toString().split('\n')
  assert.equal(lines.length, 3)
  assert.match(lines[0] ?? '', /agent\.hcl:5:\d+: log_level: expected one of trace/)
  assert.match(lines[1] ?? '', /http_max_followers must be >= 0/)
  assert.match(lines[2] ?? '', /unknown key "odd"/)
  const from = agent.stderr().length
  agent.child.kill('SIGHUP')
  await eventually(
    () => agent.stderr().slice(from).includes('the old configuration stays in effect'),
    'the log says it',
  )
  for (const part of ['log_level: expected', 'http_max_followers', 'unknown key']) {
    assert.ok(agent.stderr().slice(from).includes(part), part)
  }
  writeConfig(directory, `${open}log_level = "error"\nlog_file = "/proc/no/such.log"\n`)
  const unusable = await ask(agent.port, 'PUT', RELOAD)
  assert.equal(unusable.status, 500)
  assert.match(unusable.body.toString(), /log_file cannot be opened: .*\/proc\/no/)
  const { config } = JSON.parse((await ask(agent.port, 'GET', '/v1/agent/self')).body.toString()) as {
    config: { LogLevel: string; LogFile: string }
  }
  assert.deepEqual([config.LogLevel, config.LogFile], ['INFO', ''])
})

test('in a directory of HCL and JSON files later ones take precedence, and backups are ignored', async (t) => {
  const directory = workDirectory(t)
  const files = join(directory, 'conf.d')
  mkdirSync(join(files, 'sub.hcl'), { recursive: true })
  const write = (name: string, text: string) => writeFileSync(join(files, name), text)
  write('10-base.hcl', `data_dir = "${directory}/data"\nports { http = 0 }\nname = "first"\nregion = "r"\n`)
  write('20-more.json', JSON.stringify({ name: 'second', client: { enabled: true, meta: { a: '1', b: '1' } } }))
  write('30-last.hcl', 'datacenter = "dc9"\nclient { meta { b = 2 } }\nacl { enabled = false }\n')
  for (const name of ['30-last.hcl~', '.40-x.hcl', '#50-x.hcl#', '60-x.hcl.bak', '.60.hcl.swp'])
    write(name, 'name = "backup"')
  const agent = await startAgent(t, ['-config', files])
  const shown = async () => {
    const { config } = JSON.parse((await ask(agent.port, 'GET', '/v1/agent/self')).body.toString()) as {
      config: { NodeName: string; Region: string; Datacenter: string; LogLevel: string; Client: { Meta: unknown } }
    }
    return [config.NodeName, config.Region, config.Datacenter, config.LogLevel, config.Client.Meta]
  }
  assert.deepEqual(await shown(), ['second', 'r', 'dc9', 'INFO', { a: '1', b: '2' }])
  write('40-new.hcl', 'log_level = "warn"\nname = "third"\n')
  const answer = await ask(agent.port, 'PUT', RELOAD)
  assert.deepEqual(JSON.parse(answer.body.toString()), { NeedsRestart: ['name'], Reloaded: ['log_level'] })
  assert.deepEqual(await shown(), ['second', 'r', 'dc9', 'WARN', { a: '1', b: '2' }])
})
