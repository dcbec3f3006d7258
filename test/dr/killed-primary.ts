/** A primary in a process of its own that commits without end and says what was acknowledged, to be killed at any moment. */
import { writeSync } from 'node:fs'
import { errnoOf } from '../../src/platform/errors.ts'
import { Site } from '../helpers/replication-site.ts'

const [directory = '', port = '0', sync = 'off', run = '0'] = process.argv.slice(2)
const settings = { sync: sync === 'sync' }
const site = await Site.start({ after: () => undefined }, 'primary', { directory, port: Number(port), settings })

const cell = new Int32Array(new SharedArrayBuffer(4))

/** The pipe does not block: it is full while the test is busy. */
function tell(line: string): void {
  let rest = Buffer.from(line)
  while (rest.length > 0) {
    try {
      rest = rest.subarray(writeSync(1, rest))
    } catch (error) {
      if (errnoOf(error) !== 'EAGAIN') throw error
      Atomics.wait(cell, 0, 0, 1)
    }
  }
}

async function write(writer: number): Promise<void> {
  for (let at = 0; ; at++) {
    // oxlint-disable-next-line no-await-in-loop
    const sequence = await site.put(`w${writer}/${run}/${at}`, `${run} ${at} `.padEnd(50 + ((at * 37) % 2000), '.'))
    const primary = site.replication.metrics.primary
    const lag = primary?.secondaries[0]?.lagEntries ?? -1
    tell(`${sequence} ${lag} ${primary?.sync} ${writer} ${at}\n`)
  }
}
await Promise.all([1, 2, 3, 4].map(write))
