/** A secondary in its own process, until it is killed. */
import { parseBundle } from '../../src/dr/replication.ts'
import { Site } from '../../test/helpers/replication-site.ts'

const site = await Site.start({ after: () => undefined }, 'secondary', { timings: { heartbeatMs: 1000 } })
await site.replication.enableSecondary(parseBundle(process.argv[2]))
// The link keeps the process alive.
