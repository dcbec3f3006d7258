/** A primary in a process of its own that commits without end and says what was acknowledged, to be killed at any moment. */
import { writeSync } from 'node:fs'
import { Site } from '../helpers/replication-site.ts'

const [directory = '', port = '0', sync = 'off', run = '0'] = process.argv.slice(2)
const settings = { sync: sync === 'sync' }
const site = await Site.start({ after: () => undefined }, 'primary', { directory, port: Number(port), settings })

async function write(writer: number): Promise<void> {
  for (let at = 0; ; at++) {
    // oxlint-disable-next-line no-await-in-loop
    const sequence = await site.put(`w${writer}/${run}/${at}`, `${run} ${at} `.padEnd(50 + ((at * 37) % 2000), '.'))
    const primary = site.replication.figures.primary
    const lag = primary?.secondaries[0]?.lagEntries ?? -1
    writeSync(1, `${sequence} ${lag} ${primary?.sync} ${writer} ${at}\n`)
  }
}
await Promise.all([1, 2, 3, 4].map(write))
