/** Writes to a state directory as fast as it can until it is killed; tells each durable value on stdout. */
import { writeSync } from 'node:fs'
import { HostState } from '../../../src/host/node/state.ts'
import { recordingLogger } from '../allocations/host-fixture.ts'

const state = await HostState.open({ stateDir: process.argv[2] ?? '', log: recordingLogger() })
const start = Number(state.dynamicMeta.get('n') ?? 0)
for (let n = start + 1; ; n++) {
  await state.updateDynamicMeta(
    () =>
      new Map([
        ['n', String(n)],
        ['padding', 'x'.repeat(20_000)],
      ]),
  )
  writeSync(1, `${n}\n`)
}
