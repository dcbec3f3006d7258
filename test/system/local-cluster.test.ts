/** `npm run cluster`: its output is correct, and it leaves nothing behind. */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test, type TestContext } from 'node:test'
import { eventually } from '../helpers/eventually.ts'

const SCRIPT = resolve(import.meta.dirname, '../../scripts/cluster.ts')

function startScript(t: TestContext) {
  // In a process group of its own, as a shell would have it: Ctrl-C reaches all of them at once.
  const child = spawn(process.execPath, [SCRIPT], { stdio: ['ignore', 'pipe', 'pipe'], detached: true })
  let text = ''
  child.stdout.setEncoding('utf8').on('data', (more: string) => (text += more))
  child.stderr.setEncoding('utf8').on('data', (more: string) => (text += more))
  const ended = new Promise<number | null>((done) => child.once('exit', done))
  t.after(async () => {
    signalGroup(child, 'SIGKILL')
    await ended
  })
  return { child, ended, text: () => text }
}

function signalGroup({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  try {
    if (pid !== undefined) process.kill(-pid, signal)
  } catch {
    // All of them are gone.
  }
}

function processesMentioning(word: string): string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        return [readFileSync(join('/proc', pid, 'cmdline'), 'utf8')]
      } catch {
        return []
      }
    })
    .filter((line) => line.includes(word))
}

test('a local cluster has two servers and three agents that each server reaches, and Ctrl-C ends all of them', async (t) => {
  const { child, ended, text } = startScript(t)
  await eventually(() => text().includes('==> cluster started') || child.exitCode !== null)
  const directory = /logs +(\S+)\/NAME/.exec(text())?.[1] ?? 'none'
  const token = /token +(\S+)/.exec(text())?.[1] ?? ''
  const servers = [...text().matchAll(/server +s\d +(\S+)/g)].map(([, url]) => url ?? '')
  const agents = [...text().matchAll(/agent +(\w\d) +\S+ +node (\S+) +allocation (\S+)/g)]
  assert.deepEqual([servers.length, agents.length], [2, 3], text())
  const get = (url: string) => fetch(url, { headers: { 'X-Nomad-Token': token } })
  for (const server of servers) {
    const nodes: { ID: string; Status: string }[] = JSON.parse(await (await get(`${server}/v1/nodes`)).text())
    assert.deepEqual(
      new Set(nodes.map(({ ID, Status }) => `${ID} ${Status}`)),
      new Set(agents.map(([, , nodeId]) => `${nodeId} ready`)),
    )
    for (const [, name, , allocationId] of agents) {
      const log = `${server}/v1/client/fs/logs/${allocationId}?task=demo&type=stdout&plain=true`
      assert.match(await (await get(log)).text(), new RegExp(`^\\S+ ${name} line 1\n`))
    }
    assert.equal((await fetch(`${server}/v1/nodes`)).status, 403, 'not without the token')
  }
  assert.ok(processesMentioning(directory).length >= 9)
  signalGroup(child, 'SIGINT')
  assert.equal(await ended, 0, text())
  assert.deepEqual(processesMentioning(directory), [])
  assert.ok(!existsSync(directory))
  assert.ok(!text().includes('has ended'), text())
})

const below = () => processesMentioning('outpost-cluster-').filter((line) => line.includes('nats-server.conf'))

test('an interrupted start of a local cluster leaves no process behind', async (t) => {
  const { child, ended, text } = startScript(t)
  const before = below()
  await eventually(() => below().length > before.length)
  const mine = below().find((line) => !before.includes(line)) ?? ''
  const directory = /\S+outpost-cluster-\w+/.exec(mine.replaceAll('\0', ' '))?.[0] ?? 'none'
  signalGroup(child, 'SIGTERM')
  assert.equal(await ended, 0, text())
  await eventually(() => processesMentioning(directory).length === 0)
  assert.ok(!existsSync(directory))
})
