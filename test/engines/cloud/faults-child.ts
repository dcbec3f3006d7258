/**
 * A process with a secrets core and the cloud engine, for faults.test.ts, which kills it. Arguments: the directory of a world, its
 * unseal key in hex, its root token, the time. Its parent asks by messages.
 */
import { cloud } from '../../../src/engines/cloud/cloud.ts'
import { CoreWorld } from '../../helpers/core-world.ts'
import type { ChildAnswer, ChildRequest } from './faults-process.ts'

const [directory = '', unsealKey = '', rootToken = '', nowMs = ''] = process.argv.slice(2)
const world = await CoreWorld.reopen(directory, { unsealKey, rootToken }, { engines: [cloud], nowMs: Number(nowMs) })

process.on('message', (message) => {
  // Only the test's own process has the channel.
  const { body, id, method, nowMs: now, path } = message as ChildRequest
  world.nowMs = now
  const asked = method === 'WORK' ? world.core.open.periodicWork.tick() : world.ask(method, path, body)
  void asked.then(
    (answer) => process.send?.({ id, ...(answer ?? { status: 204, text: '' }) } satisfies ChildAnswer),
    () => process.send?.({ id, status: 500, text: '' } satisfies ChildAnswer),
  )
})
process.on('disconnect', () => process.exit())
process.send?.({ id: 0, status: 200, text: '' } satisfies ChildAnswer)
