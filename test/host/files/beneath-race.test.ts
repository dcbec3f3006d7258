/**
 * An attacker swaps files, directories and directories on the way with links to an outside secret and to the task's own
 * secrets, all the time, while every endpoint reads through the names it swaps. Attempts are counted, and both states
 * must really have been met.
 */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'
import { type Edge, startEdge } from '../../helpers/edge.ts'
import { answersIn } from '../../helpers/raw-http.ts'
import { ALLOC, INSIDE, SECRET } from '../../helpers/allocation.ts'

const ATTEMPTS = Number(process.env['RACE_ATTEMPTS'] ?? 300)
/** Requests that are sent ahead on one connection. */
const BATCH = 100
const OUTSIDE = 'OUTSIDE-of-every-allocation'
const NEVER = [SECRET, OUTSIDE, 'outside-name', 'S3CR3T-name', Buffer.from(SECRET).toString('base64').slice(0, 24)]

/** Swaps with a gap, for hosts without python3: a name is missing for a moment, which is one more state to survive. */
const SWAP_JS = `
const { renameSync } = require('node:fs')
const [a, b] = process.argv.slice(1)
const t = a + '.tmp'
console.log('ready')
for (;;) { try { renameSync(a, t); renameSync(b, a); renameSync(t, b) } catch {} }
`

/** Runs `during` while the two names are swapped; the attacker is gone before anything is tidied up. */
async function whileSwapping<T>(a: string, b: string, during: () => Promise<T>): Promise<T> {
  const script = join(import.meta.dirname, '../../helpers/swap.py')
  const child =
    (await ready(spawn('python3', [script, a, b]))) ?? (await ready(spawn(process.execPath, ['-e', SWAP_JS, a, b])))
  assert.ok(child, 'the attacker runs')
  try {
    return await during()
  } finally {
    child.kill('SIGKILL')
    await new Promise((resolve) => child.once('close', resolve))
  }
}

/** The attacker once it has begun; undefined when it cannot. */
async function ready(child: ChildProcess): Promise<ChildProcess | undefined> {
  const begun = await new Promise<boolean>((resolve) => {
    child.stdout?.once('data', () => resolve(true))
    child.once('error', () => resolve(false))
    child.once('exit', () => resolve(false))
  })
  return begun ? child : undefined
}

/** Sends the same request `count` times on one connection; gives each answer's status and body. */
async function barrage(
  edge: Edge,
  targets: readonly string[],
  each: (target: string, status: number, text: string) => void,
) {
  const requests = targets.map((target, index) =>
    [`GET ${target} HTTP/1.1`, 'Host: x', ...(index === targets.length - 1 ? ['Connection: close'] : []), '', ''].join(
      '\r\n',
    ),
  )
  const socket = connect({ port: edge.port, host: '127.0.0.1' })
  const chunks: Buffer[] = []
  socket.on('data', (bytes) => chunks.push(bytes))
  socket.write(requests.join(''))
  await new Promise((resolve, reject) => {
    socket.on('end', resolve)
    socket.on('error', reject)
  })
  const answers = answersIn(Buffer.concat(chunks))
  assert.equal(answers.length, targets.length, 'every request is answered')
  for (const [index, answer] of answers.entries()) {
    assert.ok(answer.whole)
    each(targets[index] ?? '', answer.status, answer.body.toString('latin1'))
  }
}

interface Kind {
  readonly name: string
  /** What is swapped, inside `web/local`; the other name is `<swapped>.other`. */
  readonly swapped: string
  /** Path that is asked for, beneath `web/local`. */
  readonly asked: string
  readonly isDirectory: boolean
}

const KINDS: readonly Kind[] = [
  { name: 'the file', swapped: 'f', asked: 'f', isDirectory: false },
  { name: 'its directory', swapped: 'd', asked: 'd/f', isDirectory: true },
  { name: 'a directory on the way', swapped: 'a/b', asked: 'a/b/c/f', isDirectory: true },
]

/** Makes `f` and `c/f` (or the names that tell) below `directory`. */
function fill(directory: string, content: string, name: string): void {
  mkdirSync(join(directory, 'c'), { recursive: true })
  for (const path of ['f', 'c/f', name, `c/${name}`]) writeFileSync(join(directory, path), content)
}

const ENDPOINTS = [
  ['ls', ''],
  ['stat', ''],
  ['cat', ''],
  ['readat', '&offset=0&limit=-1'],
  ['stream', '&offset=0&follow=false'],
] as const

for (const kind of KINDS) {
  for (const target of ['outside', 'secrets'] as const) {
    test(`${kind.name} replaced by a link to ${target}`, async (t) => {
      const edge = await startEdge(t)
      const local = join(edge.directory, 'web/local')
      const secrets = join(edge.directory, 'web/secrets')
      fill(edge.outside, OUTSIDE, 'outside-name')
      fill(secrets, SECRET, 'S3CR3T-name')
      const real = join(local, kind.swapped)
      mkdirSync(join(real, '..'), { recursive: true })
      const goal = target === 'outside' ? edge.outside : secrets
      if (kind.isDirectory) fill(real, INSIDE, 'inside-name')
      else writeFileSync(real, INSIDE)
      symlinkSync(kind.isDirectory ? goal : join(goal, 'f'), `${real}.other`)
      const counts = await whileSwapping(real, `${real}.other`, () => attack(edge, kind))
      const text = JSON.stringify(counts)
      t.diagnostic(text)
      assert.ok(counts.attempts >= ATTEMPTS, text)
      assert.equal(edge.lines.filter(({ level }) => level === 'error').length, 0, 'nothing went wrong')
    })
  }
}

async function attack(edge: Edge, kind: Kind) {
  const counts = { attempts: 0, inside: 0, refused: 0, missing: 0, looked: 0 }
  const targets: string[] = []
  for (let index = 0; index < BATCH; index++) {
    const [name, query] = ENDPOINTS[index % ENDPOINTS.length] ?? ENDPOINTS[0]
    const path = name === 'ls' && kind.isDirectory ? kind.asked.slice(0, -2) : kind.asked
    targets.push(`/v1/client/fs/${name}/${ALLOC}?path=web/local/${path}${query}`)
  }
  // On a busy machine the attacker may not have had its turn by then.
  const isMet = () => counts.inside > 100 && counts.refused > 100
  for (const endMs = performance.now() + 120_000; counts.attempts < ATTEMPTS || !isMet(); ) {
    assert.ok(performance.now() < endMs, `both states were not met: ${JSON.stringify(counts)}`)
    await barrage(edge, targets, (target, status, text) => {
      counts.attempts++
      const look = /\/(ls|stat)\//.test(target)
      if (look && target.includes('/ls/') && status === 200) {
        // Names inside secrets/ may be listed; names outside never.
        assert.ok(!text.includes('outside-name'), `a listing from outside: ${text}`)
        counts.looked++
        return
      }
      for (const never of NEVER) assert.ok(!text.includes(never), `${target}: ${status} ${text}`)
      if (look && status === 200) {
        assert.match(text, new RegExp(`"Size":(${INSIDE.length}|${SECRET.length})\\b`), 'facts of a file outside')
        counts.looked++
      } else if (status === 200) {
        assert.ok(text.includes(INSIDE) || text.includes(Buffer.from(INSIDE).toString('base64')), `${target}: ${text}`)
        counts.inside++
      } else if (status === 404) counts.missing++
      else {
        assert.ok(status === 400 || status === 403, `${target}: ${status} ${text}`)
        counts.refused++
      }
    })
  }
  return counts
}
