/**
 * A process that revokes a lease and is killed when its engine has taken away what it stands for. Arguments: the directory of a
 * world, its unseal key in hex, its root token, the lease. Started by revoking-crash.test.ts.
 */
import { CoreWorld } from '../helpers/core-world.ts'
import { outsider } from './revoking-engine.ts'

const [directory = '', unsealKey = '', rootToken = '', lease = ''] = process.argv.slice(2)
const engine = outsider(() => void process.kill(process.pid, 'SIGKILL'))
const world = await CoreWorld.reopen(directory, { unsealKey, rootToken }, { engines: [engine] })
await world.ask('PUT', 'sys/leases/revoke', { lease_id: lease })
