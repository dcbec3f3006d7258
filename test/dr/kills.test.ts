/** What a killed primary loses: nothing with sync, and never more than the lag that it had told. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { test } from 'node:test'
import { eventually } from '../helpers/eventually.ts'
import { Random } from '../helpers/frames.ts'
import { activate, Site, untilSame } from '../helpers/replication-site.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

const kills = Number(process.env['OUTPOST_DR_KILLS'] ?? 1)
const seed = Number(process.env['OUTPOST_SEED'] ?? Math.floor(Math.random() * 2 ** 31))
/** Before a kill. */
const COMMITS_MAX = kills > 1 ? 800 : 200

interface Told {
  readonly sequence: number
  readonly lag: number
  readonly sync: string
  readonly path: string
}

for (const mode of ['async', 'sync'] as const) {
  test(`${mode}: ${kills} kills of a primary at random moments (OUTPOST_SEED=${seed})`, async (t) => {
    const random = new Random(seed)
    const directory = temporaryDirectory(t)
    const settings = { sync: mode === 'sync' }
    const primary = await Site.start(t, 'primary', { directory, settings })
    const secondary = await Site.start(t, 'secondary')
    await primary.replication.enablePrimary({ primaryClusterAddr: '' })
    await activate(primary, secondary)
    const { port } = primary.replication.listening ?? { port: 0 }
    const lost: number[] = []
    for (let run = 0; run < kills; run++) {
      await primary.close()
      const told = await runAndKill({ directory, port, mode, run, lines: random.between(1, COMMITS_MAX) })
      await eventually(() => !secondary.replication.metrics.secondary?.isConnected, 'the link is lost')
      const last = told.at(-1)
      assert.ok(last)
      const { sequence: here } = secondary.store.position()
      const missing = told.filter(({ sequence }) => sequence > here)
      lost.push(missing.length)
      if (mode === 'sync') {
        const synchronous = missing.filter(({ sync }) => sync === 'on')
        assert.deepEqual(synchronous, [], `run ${run}: acknowledged commits are missing at ${here}`)
      }
      assert.ok(missing.length <= last.lag, `run ${run}: ${missing.length} are lost, the lag was ${last.lag}`)
      for (const { path, sequence } of told)
        assert.equal(secondary.store.get(path) !== undefined, sequence <= here, path)
      primary.options = { directory, port, settings }
      await primary.open()
      await untilSame(primary, secondary)
    }
    t.diagnostic(`commits that were acknowledged and not on the secondary, by run: ${lost.join(', ')}`)
    await primary.close()
    const beganAtMs = performance.now()
    await secondary.replication.promote({ primaryClusterAddr: '', force: false })
    t.diagnostic(`promoted in ${Math.round(performance.now() - beganAtMs)} ms`)
    await secondary.put('goes/on')
  })
}

async function runAndKill(o: {
  readonly directory: string
  readonly port: number
  readonly mode: string
  readonly run: number
  readonly lines: number
}): Promise<Told[]> {
  const program = join(import.meta.dirname, 'killed-primary.ts')
  const child = spawn(process.execPath, [program, o.directory, String(o.port), o.mode, String(o.run)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let text = ''
  child.stdout.on('data', (bytes: Buffer) => {
    text += bytes.toString()
    // Until the secondary is there a synchronous primary promises what another one does.
    const counted = o.mode === 'sync' ? / on \d+ \d+\n/g : /\n/g
    if (text.matchAll(counted).toArray().length >= o.lines) child.kill('SIGKILL')
  })
  const signal = await new Promise((resolve) => child.on('close', (_code, name) => resolve(name)))
  assert.equal(signal, 'SIGKILL', 'it did not end by itself')
  const whole = text.slice(0, text.lastIndexOf('\n')).split('\n')
  return whole.map((line) => {
    const [sequence, lag, sync = '', writer, at] = line.split(' ')
    return { sequence: Number(sequence), lag: Number(lag), sync, path: `w${writer}/${o.run}/${at}` }
  })
}
