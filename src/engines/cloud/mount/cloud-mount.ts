/** What the engine remembers of one mount, as long as that serves: nothing of it is needed after a start. */
import type { Storage } from '../../../storage/barrier/storage.ts'
import { type MountFacts, Rejection, type WorkCall } from '../../framework/engine.ts'
import { type IamClient, iamClient } from '../aws/aws.ts'
import { AwsFailure, strangeAnswer } from '../aws/aws-failure.ts'
import { KeyIntents } from '../intents/key-intent.ts'
import { MountAws } from '../aws/mount-aws.ts'
import { type Place, placeOf } from '../aws/record-place.ts'
import { RoleCounts } from './role-counts.ts'
import { Rollback } from '../intents/rollback.ts'
import { SessionCache } from './session-cache.ts'
import type { AssumedAccount } from '../intents/static-record.ts'
import { KeyedMutex } from '../../../platform/mutex.ts'

/** By which what is remembered of a mount is found. */
interface Where {
  readonly storage: Storage
  readonly mount: Pick<MountFacts, 'identityToken'>
}

export class CloudMount {
  readonly aws: MountAws
  readonly rollback = new Rollback()
  readonly keys: KeyIntents
  readonly sessions = new SessionCache()
  readonly counts = new RoleCounts()
  /** What is done for one thing at a time, by its name. */
  readonly #mutex = new KeyedMutex()
  #isChecking = false

  private constructor({ mount, storage }: Where) {
    this.aws = new MountAws(storage, mount.identityToken)
    this.keys = new KeyIntents(storage, this.placeOf)
  }

  static of(where: Where): CloudMount {
    let mount = mounts.get(where.storage)
    if (!mount) mounts.set(where.storage, (mount = new CloudMount(where)))
    return mount
  }

  /** Waits for its turn among all that has the same name. */
  exclusive<T>(name: string, work: () => Promise<T>): Promise<T> {
    return this.#mutex.runExclusive(name, work)
  }

  /** One dry run at a time. Rejects with a Rejection (429) while there is another one. */
  async checking<T>(work: () => Promise<T>): Promise<T> {
    if (this.#isChecking) throw new Rejection(429, 'a role of this mount is being checked: try again when that is done')
    this.#isChecking = true
    try {
      return await work()
    } finally {
      this.#isChecking = false
    }
  }

  /** Works with a client for users of another account, or of the mount's own. Rejects with an AwsFailure. */
  readonly withIam = async <T>(
    account: AssumedAccount | null,
    signal: AbortSignal,
    work: (iam: IamClient) => Promise<T>,
  ): Promise<T> => {
    const iam = await this.#iamFor(account, signal)
    try {
      return await work(iam)
    } finally {
      if (account) iam.close()
    }
  }

  /** Where a client that `withIam` gives calls. Rejects with an AwsFailure. */
  readonly placeOf = async (account: AssumedAccount | null, iam: IamClient): Promise<Place> =>
    account ? placeOf(account.arn, this.aws.iamSettings.target.endpoint) : this.aws.placeOf(iam)

  async #iamFor(account: AssumedAccount | null, signal: AbortSignal): Promise<IamClient> {
    if (!account) return this.aws.iam
    const { arn, externalId, sessionName } = account
    const request = {
      RoleArn: arn,
      RoleSessionName: sessionName,
      ...(externalId !== '' && { ExternalId: externalId }),
    }
    const { Credentials: made } = await this.aws
      .sts((client) => client.call((sts, options) => sts.assumeRole(request, options), { signal }), signal)
      .catch((error: unknown) => {
        if (!(error instanceof AwsFailure)) throw error
        throw new AwsFailure(
          error.code,
          `failed to assume role "${arn}": ${error.message}`,
          error.status,
          error.isAmbiguous,
        )
      })
    const { AccessKeyId: accessKeyId, SecretAccessKey: secretAccessKey, SessionToken: sessionToken } = made ?? {}
    if (!accessKeyId || !secretAccessKey || !sessionToken) throw strangeAnswer('no credentials')
    return iamClient({ ...this.aws.iamSettings, credentials: { accessKeyId, secretAccessKey, sessionToken } })
  }

  /** What the engine does by itself: undoes what was left. Resolves with how much is left after it. */
  async undo(call: WorkCall, isUrgent = false): Promise<number> {
    const [users, keys] = await Promise.all([
      this.rollback.run(call, this.aws, isUrgent),
      this.keys.run(call, this.withIam, isUrgent),
    ])
    return users + keys
  }

  /** What is wrong with what is left. */
  errors(): string[] {
    return [...this.rollback.errors(), ...this.keys.errors()]
  }
}

/** A storage is the same in each request to its mount, until the core is sealed or the mount disabled. */
const mounts = new WeakMap<Storage, CloudMount>()
