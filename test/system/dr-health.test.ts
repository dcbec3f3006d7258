/** Status, readiness, health, metrics, log and errors of a DR pair: in each state they agree and name the cause. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { workDirectory } from '../helpers/agent-process.ts'
import { type AgentHere } from '../helpers/agent-here.ts'
import { DR, DrServer } from '../helpers/dr-pair.ts'
import { eventually } from '../helpers/eventually.ts'
import { figuresOf, readinessOf } from '../helpers/figures.ts'

interface SecondaryRow {
  readonly node_id: string
  readonly connection_status: string
  readonly lag_seconds: number
}

test('a DR primary reports a missing secondary', { timeout: 180_000 }, async (t) => {
  const directory = workDirectory(t)
  const [primary, secondary] = [
    await DrServer.startHere(t, 'a', '', directory),
    await DrServer.startHere(t, 'b', '', directory),
  ]
  await primary.told('POST', `${DR}/primary/enable`)
  await secondary.told('POST', `${DR}/secondary/enable`, { token: await primary.issue('berlin') })
  await secondary.follows(primary)
  await secondary.unseal(primary.keys)

  const rowOf = async () => ((await primary.status())['secondaries'] as SecondaryRow[])[0]
  const gauge = async (name: string) =>
    (await figuresOf(primary.agent)).value(`outpost_replication_${name}`, { secondary: 'berlin' })
  const replication = async () => (await readinessOf(primary.agent)).checks['replication']?.reason ?? ''

  await t.test('while it is connected nothing is reported', async () => {
    await eventually(async () => (await gauge('secondary_connected')) === 1, 'it is connected')
    assert.equal((await figuresOf(primary.agent)).value('outpost_replication_expected'), 1)
    await eventually(async () => (await gauge('secondary_lag_seconds')) === 0, 'it has everything')
    assert.deepEqual((await readinessOf(primary.agent)).warnings, [])
    assert.equal(await replication(), 'DR primary, 1 of 1 secondaries connected')
  })

  await t.test('a disconnected secondary is named in readiness, metrics and log, and its lag grows', async () => {
    await (secondary.agent as AgentHere).stop()
    await eventually(async () => (await rowOf())?.connection_status === 'disconnected', 'the status shows it')
    assert.match(await replication(), /0 of 1 secondaries connected, secondary "berlin" disconnected for \d+ s \(.+\)/)
    assert.match((await readinessOf(primary.agent)).warnings.join('\n'), /DR secondary "berlin" disconnected/)
    assert.equal(await gauge('secondary_connected'), 0)
    assert.equal((await figuresOf(primary.agent)).value('outpost_replication_expected'), 1)
    // Nothing is committed meanwhile.
    const lag = (await rowOf())?.lag_seconds ?? 0
    await eventually(async () => ((await rowOf())?.lag_seconds ?? 0) > Math.max(lag, 1), 'the lag grows')
    assert.ok(Number(await gauge('secondary_lag_seconds')) >= 1)
    assert.ok(Number((await figuresOf(primary.agent)).value('outpost_replication_lag_seconds')) >= 1)
    await eventually(() => {
      const lines = (primary.agent as AgentHere).stderr().split('\n')
      return lines.some((line) => line.includes('DR secondary disconnected') && line.includes('"warn"'))
    }, 'a warning in the log')
  })
})
