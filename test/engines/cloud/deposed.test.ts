/** A server that is no longer active stops calling AWS at once, and the next active server completes or undoes what it began. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { cloud } from '../../../src/engines/cloud/cloud.ts'
import { CloudWorld } from '../../helpers/cloud-world.ts'
import { takeOver } from '../../helpers/takeover.ts'

/** Work at AWS, the action after whose effect the server is paused, and the actions that must not follow. */
interface Interruption {
  readonly work: (world: CloudWorld) => Promise<unknown>
  readonly after: string
}

const CASES: Readonly<Record<string, Interruption>> = {
  'the creation of a user': { after: 'CreateUser', work: (world) => world.ask('GET', 'cloud/creds/app?wait=false') },
  'the creation of a key': {
    after: 'CreateAccessKey',
    work: (world) => world.ask('GET', 'cloud/creds/app?wait=false'),
  },
  'a rotation of the root key': { after: 'GetUser', work: (world) => world.ask('POST', 'cloud/config/rotate-root') },
  'a rotation with a new root key': {
    after: 'CreateAccessKey',
    work: (world) => world.ask('POST', 'cloud/config/rotate-root'),
  },
}

for (const [name, { after, work }] of Object.entries(CASES)) {
  for (const how of ['paused beyond its lease', 'deposed'] as const) {
    test(`a server that is ${how} during ${name} calls AWS no more, and the next one leaves what has a lease`, async (t) => {
      const { aws, next, resume, world } = await interrupted(t, after, work, how)
      const before = aws.journal.length
      await resume()
      assert.deepEqual(aws.actions().slice(before), [], 'by the old server')
      for (let seconds = 0; seconds < 120; seconds += 5) {
        next.nowMs = world.world.nowMs += 5000
        await next.core.open.periodicWork.tick()
      }
      assert.deepEqual(world.users(), [])
      assert.equal(world.rootUser.keys.length, 1)
      assert.equal((await next.ask('GET', 'cloud/creds/app?wait=false')).status, 200, 'with the root key')
    })
  }
}

async function interrupted(
  t: TestContext,
  after: string,
  work: Interruption['work'],
  how: 'paused beyond its lease' | 'deposed',
) {
  let mayAct = true
  const world = await CloudWorld.open(t, { mayAct: () => mayAct })
  const { aws } = world
  await world.userRole()
  const [paused, thawed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  let isPaused = false
  aws.chaos = (action) => {
    if (action !== after || isPaused) return undefined
    isPaused = true
    paused.resolve()
    return { answerGate: thawed.promise }
  }
  const answer = work(world)
  await paused.promise
  await new Promise((resolve) => setTimeout(resolve, 20))
  const next = await takeOver(t, world.world, { engines: [cloud] })
  const resume = async () => {
    if (how === 'deposed') await world.world.core.enterStandby()
    else mayAct = false
    thawed.resolve()
    // A commit of the old server is refused by the stream; here it goes to a database that is not read any more.
    await answer
  }
  return { aws, next, resume, world }
}
