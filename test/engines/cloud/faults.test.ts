/**
 * No orphan: requests of all kinds while AWS fails at random, before and after the effect, answers late, knows what is new not
 * everywhere yet, and the core is killed at random: in this process, and as a process of its own by SIGKILL. In the end the users and
 * keys of the endpoint are those that leases, static roles and the root configuration tell. `OUTPOST_CLOUD_FAULTS` tells how many faults,
 * `OUTPOST_CLOUD_KILLS` how many processes die. `OUTPOST_SEED` repeats a run: what is asked together, and which call of a step fails how.
 * The order in which calls of one step arrive is the machine's.
 */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { rootOf } from '../../../src/engines/cloud/aws/root-record.ts'
import { ENTRY_PATHS } from '../../../src/engines/cloud/aws/entries.ts'
import { type EndpointFault, throttled, unavailable } from '../../helpers/aws/endpoint.ts'
import { AwsError, type Form, noSuchEntity } from '../../helpers/aws/wire.ts'
import { CloudWorld } from '../../helpers/cloud-world.ts'
import { Random } from '../../helpers/frames.ts'
import { ProcessVictim, type Victim } from './faults-process.ts'

const FAULTS = Number(process.env['OUTPOST_CLOUD_FAULTS'] ?? 12)
const KILLS = Number(process.env['OUTPOST_CLOUD_KILLS'] ?? 1)
const SEED = Number(process.env['OUTPOST_SEED'] ?? 21)
/** One call of so many fails. */
const FAULT_OF = 10
/** For so long what is new may not be found. */
const NEW_MS = 15_000
const ADOPTED = ['one', 'two']

const KINDS: readonly EndpointFault[] = [
  { isCut: true },
  { isCut: true, when: 'after' },
  { isCut: true, when: 'after' },
  { isCut: true, when: 'after', delayMs: 8 },
  { delayMs: 15 },
  { error: throttled() },
  { error: unavailable(), when: 'after' },
  { error: unavailable() },
  { error: new AwsError('ConcurrentModification', 'try again', 409) },
  { error: new AwsError('AccessDenied', 'not authorized', 403) },
  { error: new AwsError('LimitExceeded', 'quota', 409) },
]

interface ChaosOptions {
  /** One of so many faults is a kill. */
  readonly killOf: number
  readonly killsMax: number
}

class Chaos {
  readonly #world: CloudWorld
  readonly #victim: Victim
  readonly #options: ChaosOptions
  /** Chooses what is asked. */
  readonly #random: Random
  /** Calls of the step, by their action. */
  #calls = new Map<string, number>()
  #step = 0
  faults = 0
  kills = 0
  /** Leases in responses. */
  readonly #told: string[] = []
  #killing: Promise<void> | undefined

  constructor(world: CloudWorld, victim: Victim, options: ChaosOptions) {
    this.#world = world
    this.#victim = victim
    this.#options = options
    this.#random = new Random(SEED)
    world.aws.chaos = (action, form) => this.#fault(action, form)
  }

  /** Chosen by the step, the action and which call of it this is: not by the order among others. */
  #fault(action: string, form: Form): EndpointFault | undefined {
    const nth = (this.#calls.get(action) ?? 0) + 1
    this.#calls.set(action, nth)
    const letters = Buffer.from(action).reduce((sum, letter) => Math.imul(sum, 31) + letter, 7)
    const random = new Random(Math.imul(SEED + 1, 0x9e3779b1) ^ Math.imul(this.#step, 0x85ebca6b) ^ (letters + nth))
    if (random.next() * FAULT_OF >= 1) return undefined
    this.faults++
    if (random.next() * this.#options.killOf >= 1 || this.kills >= this.#options.killsMax || this.#killing) {
      return this.#late(action, form, random) ?? random.pick(KINDS as [EndpointFault, ...EndpointFault[]])
    }
    this.kills++
    const kill = () => (this.#killing = this.#victim.kill().finally(() => (this.#killing = undefined)))
    // Also shortly after the answer, when it is not yet written down.
    if (random.next() < 0.4) {
      this.#killing = new Promise((resolve) => setTimeout(() => void kill().finally(resolve), random.next() * 8))
      return undefined
    }
    void kill()
    return { isCut: true, when: random.next() < 0.5 ? 'before' : 'after' }
  }

  /** What is new is not known everywhere. */
  #late(action: string, form: Form, random: Random): EndpointFault | undefined {
    if (random.next() < 0.5) return undefined
    if (action === 'ListAccessKeys') return { hidesKeysMs: NEW_MS }
    const user = this.#world.aws.account.users.get(form.optional('UserName') ?? '')
    if (!user || action === 'CreateUser' || this.#world.world.nowMs - user.createdAtMs >= NEW_MS) return undefined
    return ADOPTED.includes(user.name) ? undefined : { error: noSuchEntity('user', user.name) }
  }

  /** Resolves when nothing is being killed. */
  async settled(): Promise<void> {
    while (this.#killing) await this.#killing
  }

  async step(): Promise<void> {
    this.#step++
    this.#calls = new Map()
    const random = this.#random
    const victim = this.#victim
    const requests: [() => Promise<unknown>, ...(() => Promise<unknown>)[]] = [
      () => this.#issue('app'),
      () => this.#issue('app'),
      () => this.#issue('app'),
      () => this.#issue('fixed'),
      () => this.#revoke(),
      () => this.#revoke(),
      () => victim.ask('POST', 'sys/leases/revoke-prefix/cloud/creds/fixed'),
      () => victim.ask('POST', 'cloud/config/rotate-root'),
      () => victim.ask('POST', 'cloud/static-roles/one', { username: 'one', rotation_period: 60 }),
      () => victim.ask('POST', 'cloud/static-roles/two', { username: 'two', rotation_period: 90 }),
      () => victim.ask('DELETE', `cloud/static-roles/${random.pick(['one', 'two'])}`),
      () => victim.work(),
    ]
    const together = Array.from({ length: random.between(1, 3) }, () => random.pick(requests))
    // A request to a core that was killed is refused, or fails.
    await Promise.allSettled(together.map((request) => request()))
    await this.settled()
    victim.pass(random.between(0, 7))
    await victim.work().catch(() => undefined)
    await this.settled()
  }

  async #issue(role: string): Promise<void> {
    const { status, text } = await this.#victim.ask('GET', `cloud/creds/${role}?wait=false`)
    if (status === 200) this.#told.push((JSON.parse(text) as { lease_id: string }).lease_id)
  }

  async #revoke(): Promise<void> {
    const [lease] = this.#told.splice(this.#random.between(0, Math.max(0, this.#told.length - 1)), 1)
    if (lease !== undefined) await this.#victim.ask('POST', 'sys/leases/revoke', { lease_id: lease })
  }
}

function leasesOf(world: CloudWorld) {
  const { store } = world.world.core.leases
  return [...store.hashesUnder('cloud/')].flatMap((hash) => store.pendingByHash(hash) ?? [])
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
    const left =
      storageOf(world).list(ENTRY_PATHS.intents).length + storageOf(world).list(ENTRY_PATHS.keyIntents).length
    const failing = leasesOf(world).filter(({ revocation }) => revocation).length
    if (left + failing === 0 && round > 2) return
  }
  const storage = storageOf(world)
  const intents = [...storage.paths(ENTRY_PATHS.intents), ...storage.paths(ENTRY_PATHS.keyIntents)].map((path) =>
    storage.get(path)?.toString('utf8'),
  )
  const leases = leasesOf(world).flatMap(({ revocation }) => (revocation ? [revocation] : []))
  assert.fail(`seed ${SEED}: left are ${JSON.stringify({ intents, leases, nowMs: world.world.nowMs })}`)
}

async function prepared(t: TestContext): Promise<CloudWorld> {
  const world = await CloudWorld.open(t, { root: { max_retries: 1 } })
  for (const name of ADOPTED) world.aws.account.addUser(name)
  world.aws.account.addGroup('ops')
  await world.userRole('app', { iam_groups: 'ops', iam_tags: { a: 'b' } })
  await world.userRole('fixed', { policy_arns: 'arn:aws:iam::aws:policy/ReadOnlyAccess' })
  // Every second name of this role exists already.
  const username_template =
    '{{ if eq .PolicyName "fixed" }}fixed-{{ unix_time | truncate 9 }}{{ else }}{{ .PolicyName }}-{{ random 20 }}{{ end }}'
  await world.good('POST', 'cloud/config/root', { username_template })
  return world
}

/** What AWS has is what the core tells. */
async function checkEqual(world: CloudWorld): Promise<void> {
  const leases = leasesOf(world)
  const known = new Map(leases.map(({ internal }) => [String(internal['username']), internal['keys']]))
  assert.equal(known.size, leases.length, `seed ${SEED}: each lease has a user of its own`)
  const made = world.users().filter((name) => !ADOPTED.includes(name))
  assert.deepEqual(made, [...known.keys()].sort(), `seed ${SEED}: users of AWS, and of leases`)
  for (const [name, keys] of known) {
    const there = world.aws.account.user(name).keys.map(({ id }) => id)
    // A key whose answer was lost goes with its user.
    assert.ok(Array.isArray(keys) && keys.every((key) => there.includes(String(key))), `seed ${SEED}: ${name}`)
  }
  const root = rootOf((each) => storageOf(world).get(each))
  const kept = world.rootUser.keys.map(({ id, secret }) => [id, secret])
  assert.deepEqual(kept, [[root?.accessKey, root?.secretKey]], `seed ${SEED}`)
  for (const name of ADOPTED) await checkStatic(world, name)
  // All remaining leases can be revoked.
  await world.good('POST', 'sys/leases/revoke-prefix/cloud/creds')
  assert.deepEqual(world.users(), ADOPTED)
}

async function checkStatic(world: CloudWorld, name: string): Promise<void> {
  const answer = await world.ask('GET', `cloud/static-creds/${name}`)
  if (answer.status === 404) return
  const { access_key: id, secret_key: secret } = answer.body.data
  const { keys } = world.aws.account.user(name)
  assert.ok(keys.length <= 2)
  assert.ok(
    keys.some((key) => key.id === id && key.secret === secret),
    `seed ${SEED}: ${name}`,
  )
}

test('leaves only leased users in AWS after random faults and kills', async (t) => {
  t.diagnostic(`OUTPOST_SEED=${SEED}`)
  const world = await prepared(t)
  const chaos = new Chaos(world, world, { killOf: 5, killsMax: Number.POSITIVE_INFINITY })
  while (chaos.faults < FAULTS) await chaos.step()
  t.diagnostic(`${chaos.faults} faults, ${chaos.kills} of them kills; ${world.aws.journal.length} calls`)
  await chaos.settled()
  await quiet(world)
  await checkEqual(world)
})

test('leaves only leased users in AWS after SIGKILL', async (t) => {
  t.diagnostic(`OUTPOST_SEED=${SEED}`)
  const world = await prepared(t)
  const victim = await ProcessVictim.start(world)
  const chaos = new Chaos(world, victim, { killOf: 2, killsMax: KILLS })
  try {
    while (chaos.kills < KILLS) await chaos.step()
    await chaos.settled()
  } finally {
    await victim.end()
  }
  t.diagnostic(`${chaos.faults} faults, ${chaos.kills} of them kills; ${world.aws.journal.length} calls`)
  await quiet(world)
  await checkEqual(world)
})
