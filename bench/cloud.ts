/**
 * Overhead of the daemon for AWS calls: credentials from a server, alternating with the same calls by the SDK alone, against
 * one endpoint that responds after 5 ms or immediately; revocation of 600 users by prefix; expiry of 1,000 users within one second,
 * and the event loop delay meanwhile.
 */
import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { IAM } from '@aws-sdk/client-iam'
import { STS } from '@aws-sdk/client-sts'
import { cloud as engine } from '../src/engines/cloud/cloud.ts'
import { CoreWorld } from '../test/helpers/core-world.ts'
import type { AccountSaid } from './support/aws-account.ts'
import { Helper } from './support/child.ts'
import { CoreServer } from './support/core.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { inTurn, median, nowMs } from './support/measure.ts'

const POLICY = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}'
const ROLE = 'arn:aws:iam::123456789012:role/deploy'
const [DELAY_MS, REVOKED, EXPIRED, AT_ONCE] = [5, 600, 1000, 32]

type Account = Helper<string, AccountSaid>
type Ask = (verb: string, path: string, body?: object) => Promise<{ status: number; body: unknown }>

async function good(ask: Ask, verb: string, path: string, body?: object): Promise<void> {
  const answer = await ask(verb, path, body)
  if (answer.status >= 300) throw new WrongContent(`${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
}

async function usersOf(aws: Account): Promise<number> {
  aws.send('users')
  return (await aws.next()).users
}

async function prepare(ask: Ask, root: AccountSaid['root']): Promise<void> {
  await good(ask, 'POST', 'sys/mounts/cloud', { type: 'cloud' })
  await good(ask, 'POST', 'cloud/config/root', root)
  await good(ask, 'POST', 'cloud/config/lease', { lease: '1h', lease_max: '2h' })
  await good(ask, 'POST', 'cloud/roles/user', { credential_type: 'iam_user', policy_document: POLICY })
  await good(ask, 'POST', 'cloud/roles/session', { credential_type: 'assumed_role', role_arns: ROLE })
}

async function many(count: number, work: () => Promise<void>): Promise<void> {
  let at = 0
  const one = async () => {
    while (at++ < count) await work()
  }
  await Promise.all(Array.from({ length: AT_ONCE }, one))
}

async function timed(count: number, work: () => Promise<unknown>): Promise<number> {
  const times: number[] = []
  for (let at = 0; at < count; at++) {
    const beganMs = nowMs()
    await work()
    times.push(nowMs() - beganMs)
  }
  return median(times)
}

/** The calls that the daemon makes, by the SDK alone. */
function bare(root: AccountSaid['root']) {
  const credentials = { accessKeyId: root.access_key, secretAccessKey: root.secret_key }
  const settings = { endpoint: root.iam_endpoint, region: 'us-east-1', credentials }
  const [iam, sts] = [new IAM(settings), new STS(settings)]
  return {
    async user() {
      const UserName = `bare-${randomBytes(12).toString('hex')}`
      await iam.createUser({ UserName, Tags: [{ Key: 'a', Value: 'b' }] })
      await iam.putUserPolicy({ UserName, PolicyName: 'p', PolicyDocument: POLICY })
      await iam.createAccessKey({ UserName })
    },
    session: () => sts.assumeRole({ RoleArn: ROLE, RoleSessionName: 'bare', DurationSeconds: 3600 }),
  }
}

async function overhead(options: Options, delayMs: number): Promise<Row[]> {
  const aws: Account = new Helper('aws-account', { delayMs: String(delayMs) })
  const server = new CoreServer()
  try {
    await server.start()
    await server.initialise()
    const { root } = await aws.next()
    const ask: Ask = (verb, path, body) => server.ask(verb, path, body)
    await prepare(ask, root)
    const sdk = bare(root)
    const rows: Row[] = []
    const count = options.quick ? 10 : 60
    for (const kind of ['user', 'session'] as const) {
      const [ours, theirs]: [number[], number[]] = [[], []]
      const daemon = () => good(ask, 'GET', `cloud/creds/${kind}?wait=false`)
      await timed(10, daemon)
      await timed(10, sdk[kind])
      await inTurn(options.rounds, [
        async () => void ours.push(await timed(count, daemon)),
        async () => void theirs.push(await timed(count, sdk[kind])),
      ])
      const figure = `credentials: ${kind}, AWS responds in ${delayMs} ms, p50`
      rows.push({ figure, unit: 'ms', ours, peer: { name: 'ms, SDK alone', runs: theirs } })
    }
    return rows
  } finally {
    await server.remove()
    await aws.stop()
  }
}

async function takenBack(options: Options): Promise<Row[]> {
  const aws: Account = new Helper('aws-account', { delayMs: String(DELAY_MS) })
  const directory = mkdtempSync(join(tmpdir(), 'outpost-bench-cloud-'))
  const world = await CoreWorld.create(directory, { engines: [engine] })
  const [revoked, expired] = options.quick ? [60, 100] : [REVOKED, EXPIRED]
  try {
    const ask: Ask = (verb, path, body) => world.ask(verb, path, body)
    await prepare(ask, (await aws.next()).root)
    const give = () => good(ask, 'GET', 'cloud/creds/user?wait=false')
    await many(revoked, give)
    const beganMs = nowMs()
    await good(ask, 'PUT', 'sys/leases/revoke-prefix/cloud/creds/user')
    const revokedMs = nowMs() - beganMs
    if ((await usersOf(aws)) !== 0) throw new WrongContent('users remain')
    await many(expired, give)
    world.nowMs += 3_700_000
    const delay = monitorEventLoopDelay({ resolution: 5 })
    delay.enable()
    const endedMs = nowMs()
    await world.core.open.leases.expiry.tick()
    const expiredMs = nowMs() - endedMs
    delay.disable()
    if ((await usersOf(aws)) !== 0) throw new WrongContent('users remain')
    const most = { figure: 'longest event loop delay meanwhile', unit: 'ms', ours: [delay.max / 1e6] }
    return [
      { figure: `${revoked} users revoked by prefix`, unit: 'ms', ours: [revokedMs] },
      { figure: `${expired} users that expire within one second`, unit: 'ms', ours: [expiredMs] },
      most,
    ]
  } finally {
    await world.close()
    rmSync(directory, { recursive: true, force: true })
    await aws.stop()
  }
}

export async function cloud(options: Options): Promise<Row[]> {
  return [...(await overhead(options, DELAY_MS)), ...(await overhead(options, 0)), ...(await takenBack(options))]
}

if (import.meta.main) await alone(cloud)
