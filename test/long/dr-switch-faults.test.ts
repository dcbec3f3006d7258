/** A change of roles whose servers are stopped or killed on the way: there is one primary at most, and no acknowledged write is lost. */
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { DR, drPair, type DrServer } from '../helpers/dr-pair.ts'
import { eventually } from '../helpers/eventually.ts'
import { commandsAt } from '../helpers/secrets-server.ts'

const HEALTHY = 200
const SEALED = 503
const SECONDARY = 472

test('a role change with stopped or killed servers', { timeout: 280_000 }, async (t) => {
  const { primary: a, secondary: b } = await drPair(t)
  const { keys } = a
  const written: string[] = []
  const write = async (server: DrServer, name: string) => {
    await server.told('POST', `cubbyhole/${name}`, { value: name }, keys.token)
    written.push(name)
  }
  const readAll = async (server: DrServer) => {
    for (const name of written) await server.told('GET', `cubbyhole/${name}`, undefined, keys.token)
  }
  const switched = (from: DrServer, to: DrServer) => {
    const line = `operator dr switch -secondary ${to.agent.url}`
    return commandsAt(from.agent, from.directory)(line, `${keys.shares.join('\n')}\n`, keys.token)
  }

  await t.test('a demotion is refused if the secondary does not respond, and the primary serves again', async () => {
    await proven(a)
    b.process.child.kill('SIGSTOP')
    await write(a, 'unseen')
    const refused = await a.ask('POST', `${DR}/primary/demote`, { secondary_id: 'b' }, keys.token)
    assert.equal(refused.status, 503, refused.text)
    assert.match(refused.errors.join(), /the secondary "b" lacks \d+ commits .*: this cluster is still the primary/)
    assert.equal(await a.health(), HEALTHY)
    await write(a, 'goes-on')
    b.process.child.kill('SIGCONT')
    await b.follows(a)
    await readAll(a)
  })

  await t.test('a primary that is killed while it waits for the secondary stays primary', async () => {
    await proven(a)
    b.process.child.kill('SIGSTOP')
    await write(a, 'before-kill')
    const cut = assert.rejects(a.ask('POST', `${DR}/primary/demote`, { secondary_id: 'b' }, keys.token))
    await eventually(async () => (await a.health()) === SEALED, 'it takes no requests')
    await a.kill()
    await cut
    b.process.child.kill('SIGCONT')
    await a.restart()
    await a.unseal(keys)
    assert.deepEqual([(await a.status())['mode'], await a.health()], ['primary', HEALTHY])
    await write(a, 'after-kill')
    await b.follows(a)
    await readAll(a)
  })

  await t.test('if both are killed after the demotion, the same command continues', async () => {
    await proven(a)
    await a.told('POST', `${DR}/primary/demote`, { secondary_id: 'b' }, keys.token)
    await b.kill()
    const cut = await switched(a, b)
    assert.equal(cut.code, 1)
    assert.match(cut.stderr, /State: http\S+ is secondary \(idle\); http\S+ is in an unknown state/)
    assert.match(cut.stderr, /"outpost operator dr failover" at http\S+ promotes it again/)
    await a.kill()
    await Promise.all([a.restart(), b.restart()])
    const sealed = await switched(a, b)
    assert.match(sealed.stderr, /is sealed: run "outpost operator unseal" there/)
    await a.unseal(keys)
    await b.unseal(keys)
    assert.deepEqual([await a.health(), await b.health()], [SECONDARY, SECONDARY], 'no server takes writes')
    const done = await switched(a, b)
    assert.equal(done.code, 0, done.stderr)
    await write(b, 'on-new')
    await a.follows(b)
    await readAll(b)
    assert.equal((await a.status())['conflict_report'], '')
  })

  await t.test('a demoted primary is promoted by a failover, and the other one joins it', async () => {
    await proven(b)
    await b.told('POST', `${DR}/primary/demote`, { secondary_id: '127.0.0.1' }, keys.token)
    const run = (server: DrServer, line: string, input: string) =>
      commandsAt(server.agent, server.directory)(`operator dr ${line}`, input, keys.token)
    const back = await run(b, 'failover -yes -', keys.shares.join('\n'))
    assert.equal(back.code, 0, back.stderr)
    await write(b, 'back')
    const issued = await run(b, 'token a', '')
    const joined = await run(a, `join -shares-file ${sharesFile(a, keys.shares)}`, issued.stdout)
    assert.equal(joined.code, 0, joined.stderr)
    await a.follows(b)
    await readAll(b)
  })
})

async function proven(primary: DrServer): Promise<void> {
  await eventually(async () => {
    const rows = (await primary.status())['secondaries'] as { authenticated: boolean }[]
    return rows.some(({ authenticated }) => authenticated)
  }, 'the secondary proves that it has the key')
}

function sharesFile({ directory }: DrServer, shares: readonly string[]): string {
  const file = join(directory, 'shares.txt')
  writeFileSync(file, shares.join('\n'))
  return file
}
