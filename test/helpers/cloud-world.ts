/** A core with a mount of the cloud engine and its AWS endpoint. */
import assert from 'node:assert/strict'
import type { TestContext } from 'node:test'
import { cloud } from '../../src/engines/cloud/cloud.ts'
import { newRole, roles } from '../../src/engines/cloud/mount/role-record.ts'
import type { AccessKey, User } from './aws/account.ts'
import { AwsEndpoint } from './aws/endpoint.ts'
import { CoreWorld, type CoreAnswer, type WorldOptions } from './core-world.ts'

export const POLICY = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}'

export interface CloudWorldOptions extends WorldOptions {
  /** Further fields of `config/root`. */
  readonly root?: Readonly<Record<string, unknown>>
}

export class CloudWorld {
  readonly aws: AwsEndpoint
  readonly rootUser: User
  readonly rootKey: AccessKey
  world: CoreWorld
  #callers = new AbortController()

  private constructor(world: CoreWorld, aws: AwsEndpoint) {
    this.world = world
    this.aws = aws
    aws.nowMs = () => this.world.nowMs
    const { key, user } = aws.root()
    this.rootUser = user
    this.rootKey = key
  }

  static async open(t: TestContext, { root = {}, ...options }: CloudWorldOptions = {}): Promise<CloudWorld> {
    const aws = await AwsEndpoint.open(t)
    // AWS reports times in whole seconds.
    const nowMs = Math.floor(Date.now() / 1000) * 1000
    const world = await CoreWorld.open(t, { nowMs, ...options, engines: [cloud] })
    const own = new CloudWorld(world, aws)
    t.after(() => own.world.store.close())
    await own.good('POST', 'sys/mounts/cloud', { type: 'cloud' })
    await own.good('POST', 'cloud/config/root', {
      access_key: own.rootKey.id,
      secret_key: own.rootKey.secret,
      region: 'us-east-1',
      iam_endpoint: aws.url,
      sts_endpoint: aws.url,
      max_retries: 0,
      ...root,
    })
    aws.journal.length = 0
    return own
  }

  ask(method: string, path: string, body?: unknown): Promise<CoreAnswer> {
    return this.world.ask(method, path, body, { signal: this.#callers.signal })
  }

  /**
   * Ends the core like a killed process: connections to AWS are cut, callers disconnect, nothing more is written. A new
   * core continues with its database.
   */
  async kill(): Promise<void> {
    const { directory, keys, nowMs } = this.world
    this.#callers.abort()
    this.#callers = new AbortController()
    this.aws.cut()
    await this.world.close()
    this.world = await CoreWorld.reopen(directory, keys, { nowMs, engines: [cloud] })
  }

  /** Like `ask`, but fails for a status of 400 and above. */
  async good(method: string, path: string, body?: unknown): Promise<CoreAnswer> {
    const answer = await this.ask(method, path, body)
    assert.ok(answer.status < 400, `${method} ${path}: ${answer.status} ${answer.text}`)
    return answer
  }

  /** A role that issues users. */
  async userRole(name = 'app', more: Readonly<Record<string, unknown>> = {}): Promise<void> {
    await this.good('POST', `cloud/roles/${name}`, { credential_type: 'iam_user', policy_document: POLICY, ...more })
  }

  /** Names of the users that the engine has created. */
  users(): string[] {
    return [...this.aws.account.users.keys()].filter((name) => name !== this.rootUser.name).sort()
  }

  /** Advances the clocks of the core and of AWS. */
  pass(seconds: number): void {
    this.world.nowMs += seconds * 1000
  }

  /** Runs the background work of engines now. */
  async work(): Promise<void> {
    await this.world.core.open.periodicWork.tick()
  }

  /** Runs the lease expiry now. */
  async sweep(): Promise<void> {
    await this.world.core.leases.expiry.tick()
  }
}

/** Stores a role like older versions that accepted any `arn`. */
export async function storeInvalidRole(world: CoreWorld, name: string): Promise<void> {
  const { facts, storage } = world.core.open.mounts.find(`cloud/roles/${name}`)?.mount ?? assert.fail('no mount')
  const role = { ...newRole(name), isLegacy: true, invalidData: 'arn:gobbledygook' }
  await storage.commit({ puts: [roles.put(facts, role)], deletes: [] })
}
