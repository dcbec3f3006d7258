/**
 * No orphan: requests of all kinds while AWS fails at random, before and after the effect, and the process is killed at random.
 * In the end the users and keys of the endpoint are those that leases, static roles and the root configuration tell.
 * `OUTPOST_CLOUD_FAULTS` tells how many faults and kills (1000 for the whole), `OUTPOST_CLOUD_SEED` repeats a run.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { rootOf } from '../../../src/engines/cloud/root-record.ts'
import { at } from '../../../src/engines/cloud/entries.ts'
import { type EndpointFault, throttled, unavailable } from '../../helpers/aws/endpoint.ts'
import { AwsError } from '../../helpers/aws/wire.ts'
import { CloudWorld } from '../../helpers/cloud-world.ts'
import { Random } from '../../helpers/frames.ts'

const FAULTS = Number(process.env['OUTPOST_CLOUD_FAULTS'] ?? 12)
const SEED = Number(process.env['OUTPOST_CLOUD_SEED'] ?? 21)
/** One call of so many fails, one of so many faults is a kill. */
const FAULT_OF = 12
const KILL_OF = 5

const KINDS: readonly EndpointFault[] = [
  { isCut: true },
  { isCut: true, when: 'after' },
  { isCut: true, when: 'after' },
  { error: throttled() },
  { error: unavailable(), when: 'after' },
  { error: unavailable() },
  { error: new AwsError('ConcurrentModification', 'try again', 409) },
  { error: new AwsError('AccessDenied', 'not authorized', 403) },
  { error: new AwsError('LimitExceeded', 'quota', 409) },
]

class Chaos {
  readonly #world: CloudWorld
  readonly #random: Random
  faults = 0
  kills = 0
  /** Leases that were to be revoked: a process that was killed may have removed their users, and not them. */
  readonly revoked = new Set<string>()
  #killing: Promise<void> | undefined

  constructor(world: CloudWorld, random: Random) {
    this.#world = world
    this.#random = random
    world.aws.chaos = () => this.#fault()
  }

  pick<T>(of: readonly T[]): T {
    return of[Math.floor(this.#random.next() * of.length)] as T
  }

  #fault(): EndpointFault | undefined {
    if (this.#random.next() * FAULT_OF >= 1) return undefined
    this.faults++
    if (this.#random.next() * KILL_OF >= 1 || this.#killing) return this.pick(KINDS)
    this.kills++
    this.#killing = this.#world.kill().finally(() => (this.#killing = undefined))
    return { isCut: true, when: this.pick(['before', 'after']) }
  }

  /** Resolves when nobody is being killed. */
  async settled(): Promise<void> {
    while (this.#killing) await this.#killing
  }

  async step(): Promise<void> {
    const world = this.#world
    const requests: (() => Promise<unknown>)[] = [
      () => world.ask('GET', 'cloud/creds/app?wait=false'),
      () => world.ask('GET', 'cloud/creds/app?wait=false'),
      () => world.ask('GET', 'cloud/creds/app?wait=false'),
      () => world.ask('GET', 'cloud/creds/fixed?wait=false'),
      () => this.#revoke(),
      () => this.#revoke(),
      () => world.ask('POST', 'sys/leases/revoke-prefix/cloud/creds/fixed'),
      () => world.ask('POST', 'cloud/config/rotate-root'),
      () => world.ask('POST', 'cloud/static-roles/one', { username: 'one', rotation_period: 60 }),
      () => world.ask('POST', 'cloud/static-roles/two', { username: 'two', rotation_period: 90 }),
      () => world.ask('DELETE', `cloud/static-roles/${this.pick(['one', 'two'])}`),
      () => world.work(),
    ]
    const together = Array.from({ length: 1 + Math.floor(this.#random.next() * 3) }, () => this.pick(requests))
    // A request to a core that was killed is refused, or fails.
    await Promise.allSettled(together.map((request) => request()))
    await this.settled()
    world.pass(Math.floor(this.#random.next() * 8))
    await world.work()
    await this.settled()
  }

  async #revoke(): Promise<void> {
    const leases = leasesOf(this.#world)
    if (leases.length === 0) return
    const { id } = this.pick(leases)
    this.revoked.add(id)
    await this.#world.ask('POST', 'sys/leases/revoke', { lease_id: id })
  }
}

function leasesOf(world: CloudWorld) {
  const { store } = world.world.core.leases
  return [...store.under('cloud/')].flatMap((hash) => store.pendingByHash(hash) ?? [])
}

function storageOf(world: CloudWorld) {
  const storage = world.world.core.open.mounts.get('cloud/')?.storage
  assert.ok(storage)
  return storage
}

/** AWS works again, and time passes: everything that can be undone is. */
async function quiet(world: CloudWorld): Promise<void> {
  world.aws.unscript()
  for (let round = 0; round < 60; round++) {
    world.pass(16)
    await world.work()
    await world.sweep()
    const left = storageOf(world).list(at.intents).length + storageOf(world).list(at.keyIntents).length
    const failing = leasesOf(world).filter(({ revocation }) => revocation).length
    if (left + failing === 0 && round > 2) return
  }
  const storage = storageOf(world)
  const intents = [...storage.paths(at.intents), ...storage.paths(at.keyIntents)].map((path) =>
    storage.get(path)?.toString('utf8'),
  )
  const leases = leasesOf(world).flatMap(({ revocation }) => (revocation ? [revocation] : []))
  assert.fail(`seed ${SEED}: left are ${JSON.stringify({ intents, leases, nowMs: world.world.nowMs })}`)
}

test('the state of AWS is that of the leases, after random faults and kills', async (t) => {
  t.diagnostic(`seed ${SEED}`)
  const world = await CloudWorld.open(t, { root: { max_retries: 1 } })
  for (const name of ['one', 'two']) world.aws.account.addUser(name)
  world.aws.account.addGroup('ops')
  await world.userRole('app', { iam_groups: 'ops', iam_tags: { a: 'b' } })
  await world.userRole('fixed', { policy_arns: 'arn:aws:iam::aws:policy/ReadOnlyAccess' })
  // Every second name of this role is one that there is already.
  const username_template =
    '{{ if eq .PolicyName "fixed" }}fixed-{{ unix_time | truncate 9 }}{{ else }}{{ .PolicyName }}-{{ random 20 }}{{ end }}'
  await world.good('POST', 'cloud/config/root', { username_template })
  const chaos = new Chaos(world, new Random(SEED))
  while (chaos.faults < FAULTS) await chaos.step()
  t.diagnostic(`${chaos.faults} faults, ${chaos.kills} of them kills; ${world.aws.journal.length} calls`)
  await chaos.settled()
  await quiet(world)
  const leases = leasesOf(world)
  const known = new Map(leases.map(({ internal }) => [String(internal['username']), internal['keys']]))
  assert.equal(known.size, leases.length, 'each lease has a user of its own')
  const isRevoked = new Set(
    leases
      .filter(({ id, path }) => chaos.revoked.has(id) || path === 'cloud/creds/fixed')
      .map(({ internal }) => String(internal['username'])),
  )
  for (const [name, keys] of known) {
    const user = world.aws.account.users.get(name)
    const ids = user?.keys.map(({ id }) => id) ?? []
    if (ids.length > 0 || !isRevoked.has(name)) assert.deepEqual(ids, keys, `seed ${SEED}: ${name}`)
  }
  const made = world.users().filter((name) => name !== 'one' && name !== 'two')
  assert.deepEqual(
    made.filter((name) => !known.has(name)),
    [],
    `seed ${SEED}: users without a lease`,
  )
  const root = rootOf((each) => storageOf(world).get(each))
  const kept = world.rootUser.keys.map(({ id, secret }) => [id, secret])
  assert.deepEqual(kept, [[root?.accessKey, root?.secretKey]], `seed ${SEED}`)
  await checkStatic(world)
  // What is left can all be taken back.
  await world.good('POST', 'sys/leases/revoke-prefix/cloud/creds')
  assert.deepEqual(world.users(), ['one', 'two'])
})

async function checkStatic(world: CloudWorld): Promise<void> {
  for (const name of ['one', 'two']) {
    const answer = await world.ask('GET', `cloud/static-creds/${name}`)
    if (answer.status === 404) continue
    const { access_key: id, secret_key: secret } = answer.body.data
    const { keys } = world.aws.account.user(name)
    assert.ok(keys.length <= 2)
    assert.ok(
      keys.some((key) => key.id === id && key.secret === secret),
      `seed ${SEED}: ${name}`,
    )
  }
}
