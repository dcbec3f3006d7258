/** State of a mount in memory, which is not needed after a restart: clients, retries, shared sessions, metrics. */
import { KeyedMutex } from '../../../platform/mutex.ts'
import type { Storage } from '../../../storage/barrier/storage.ts'
import { type EngineMetric, type MountFacts, Rejection, type PeriodicCall } from '../../framework/engine.ts'
import { type AccountLocation, locationOf } from '../aws/account.ts'
import { AwsClients } from '../aws/aws-clients.ts'
import { AwsFailure, invalidResponse } from '../aws/aws-failure.ts'
import { type IamClient, iamClient } from '../aws/aws.ts'
import { KeyIntents } from '../intents/key-intent.ts'
import type { AssumedAccount } from '../intents/user-records.ts'
import { UserRollback } from '../intents/rollback.ts'
import { SessionCache } from './session-cache.ts'

/** A mount during a request or periodic work. */
export interface MountContext {
  readonly mount: MountFacts
  readonly storage: Storage
  readonly nowMs: number
  readonly signal: AbortSignal
}

/** Identifies a mount. */
interface MountHandle {
  readonly storage: Storage
  readonly mount: Pick<MountFacts, 'identityToken'>
}

export class CloudMount {
  readonly aws: AwsClients
  readonly rollback = new UserRollback()
  readonly keys: KeyIntents
  readonly sessions = new SessionCache()
  readonly metrics = new RoleMetrics()
  readonly #mutex = new KeyedMutex()
  #isDryRunning = false

  private constructor({ mount, storage }: MountHandle) {
    this.aws = new AwsClients(storage, mount.identityToken)
    this.keys = new KeyIntents(storage, this.locationOf)
  }

  static of(handle: MountHandle): CloudMount {
    let mount = mounts.get(handle.storage)
    if (!mount) mounts.set(handle.storage, (mount = new CloudMount(handle)))
    return mount
  }

  /** Runs `work` exclusively among all work with the same name. */
  exclusive<T>(name: string, work: () => Promise<T>): Promise<T> {
    return this.#mutex.runExclusive(name, work)
  }

  /** Runs one dry run at a time. Rejects with a Rejection (429) while another one runs. */
  async runDryRun<T>(work: () => Promise<T>): Promise<T> {
    if (this.#isDryRunning) throw new Rejection(429, 'another role of this mount is being checked, try again later')
    this.#isDryRunning = true
    try {
      return await work()
    } finally {
      this.#isDryRunning = false
    }
  }

  /** Runs `work` with a client for another account, or for that of the mount if null. Rejects with an AwsFailure. */
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

  /** The account of a client of `withIam`. Rejects with an AwsFailure. */
  readonly locationOf = async (account: AssumedAccount | null, iam: IamClient): Promise<AccountLocation> =>
    account ? locationOf(account.arn, this.aws.iamSettings.target.endpoint) : this.aws.locationOf(iam)

  async #iamFor(account: AssumedAccount | null, signal: AbortSignal): Promise<IamClient> {
    if (!account) return this.aws.iam
    const { arn, externalId, sessionName } = account
    const request = {
      RoleArn: arn,
      RoleSessionName: sessionName,
      ...(externalId !== '' && { ExternalId: externalId }),
    }
    const { Credentials: credentials } = await this.aws
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
    const { AccessKeyId: accessKeyId, SecretAccessKey: secretAccessKey, SessionToken: sessionToken } = credentials ?? {}
    if (!accessKeyId || !secretAccessKey || !sessionToken) throw invalidResponse('no credentials')
    return iamClient({ ...this.aws.iamSettings, credentials: { accessKeyId, secretAccessKey, sessionToken } })
  }

  /** Rolls back intents that are due, or all if `isUrgent`. Resolves with the number of remaining ones. */
  async rollBack(call: PeriodicCall, isUrgent = false): Promise<number> {
    const [users, keys] = await Promise.all([
      this.rollback.run(call, this.aws, isUrgent),
      this.keys.run(call, this.withIam, isUrgent),
    ])
    return users + keys
  }

  /** Errors of the last attempts. */
  errors(): string[] {
    return [...this.rollback.errors(), ...this.keys.errors()]
  }
}

/** The storage of a mount is the same object until the core is sealed or the mount is disabled. */
const mounts = new WeakMap<Storage, CloudMount>()

/** Roles with separate metrics. Callers can create any number of roles. */
const ROLES_MAX = 100
const OTHER = 'other'

const HELP = {
  credentials: 'AWS credentials issued, by role, including shared ones.',
  shared_sessions: 'AWS credentials from a session of another request, by role.',
  failures: 'Failed requests for AWS credentials, by role and kind.',
  revocations: 'Revocations of AWS users, by role and result.',
} as const

type MetricKind = keyof typeof HELP

/** Counters of the roles of a mount. */
export class RoleMetrics {
  readonly #counts = new Map<
    string,
    { readonly kind: MetricKind; readonly labels: Readonly<Record<string, string>>; value: number }
  >()
  readonly #roles = new Set<string>()

  add(kind: MetricKind, role: string, more: Readonly<Record<string, string>> = {}): void {
    if (this.#roles.size < ROLES_MAX) this.#roles.add(role)
    const labels = { role: this.#roles.has(role) ? role : OTHER, ...more }
    const key = JSON.stringify([kind, labels])
    const known = this.#counts.get(key)
    if (known) known.value++
    else this.#counts.set(key, { kind, labels, value: 1 })
  }

  countFailure(role: string, error: unknown): void {
    this.add('failures', role, { kind: kindOf(error) })
  }

  metrics(mount: string): EngineMetric[] {
    return (Object.keys(HELP) as MetricKind[]).map((kind) => ({
      name: `outpost.cloud.${kind}`,
      help: HELP[kind],
      points: [...this.#counts.values()]
        .filter((each) => each.kind === kind)
        .map(({ labels, value }) => ({ labels: { mount, ...labels }, value })),
    }))
  }
}

/** `outside`: AWS throttles or does not respond. `refused`: by AWS or by the role. `limited`: too many concurrent requests. */
function kindOf(error: unknown): string {
  if (!(error instanceof Rejection)) return 'fault'
  if (error.status === 502) return 'outside'
  return error.status === 429 ? 'limited' : error.status === 503 ? 'given_up' : 'refused'
}
