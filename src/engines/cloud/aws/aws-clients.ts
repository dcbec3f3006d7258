/**
 * The AWS clients of a mount. They are created for the first call, and again after a change of the root configuration. Of several
 * STS endpoints the first that responds is used until it fails.
 */
import type { Storage } from '../../../storage/barrier/storage.ts'
import type { MountFacts } from '../../framework/engine.ts'
import {
  type ClientSettings,
  type CredentialSource,
  type IamClient,
  iamClient,
  type StsClient,
  stsClient,
} from './aws.ts'
import { AwsFailure } from './aws-failure.ts'
import { attemptsOf, iamTarget, staticCredentials, stsTargets } from './aws-target.ts'
import { Federation } from './federation.ts'
import { type AccountLocation, locationOf } from './account.ts'
import { NO_ROOT, type RootConfig, rootOf } from './root-record.ts'

/** A new access key may be unknown to AWS for this time. */
const NEW_KEY_MS = 15_000
/** Timeout for the lookup of the account, for each STS endpoint and for IAM. */
const ACCOUNT_LOOKUP_MS = 10_000

export class AwsClients {
  readonly #storage: Storage
  #config: RootConfig | undefined
  #iam: IamClient | undefined
  #sts: StsClient[] = []
  /** The element of `#sts` that responded; undefined if none has. */
  #activeSts: StsClient | undefined
  /** The account of `#iam`. */
  #location: Promise<AccountLocation> | undefined
  readonly #tokens: MountFacts['identityToken']
  readonly #lookupMs: number
  #federation: Federation | undefined

  constructor(storage: Storage, tokens: MountFacts['identityToken'], lookupMs = ACCOUNT_LOOKUP_MS) {
    this.#storage = storage
    this.#tokens = tokens
    this.#lookupMs = lookupMs
  }

  /** The durable root configuration. */
  get config(): RootConfig {
    return rootOf((each) => this.#storage.get(each)) ?? NO_ROOT
  }

  get iam(): IamClient {
    this.#current()
    this.#iam ??= iamClient(this.iamSettings)
    return this.#iam
  }

  get iamSettings(): ClientSettings {
    const config = this.#current()
    return { ...this.#settings(config), target: iamTarget(config) }
  }

  /** The account of the mount's client, looked up once for each root configuration. Rejects with an AwsFailure. */
  async locationOf(iam: IamClient): Promise<AccountLocation> {
    if (this.iam !== iam) throw new AwsFailure('', 'config/root was changed during the request', 0, true)
    if (!this.#location) {
      const lookup: Promise<AccountLocation> = this.#lookupLocation(iam).catch((error: unknown) => {
        if (this.#location === lookup) this.#location = undefined
        throw error
      })
      this.#location = lookup
    }
    return this.#location
  }

  /** STS returns the caller's identity to every caller. Without it, IAM returns it to a user with the right to read itself. */
  async #lookupLocation(iam: IamClient): Promise<AccountLocation> {
    const { endpoint } = this.iamSettings.target
    try {
      const signal = AbortSignal.timeout(this.#lookupMs * this.#stsClients().length)
      const ask = (client: StsClient) => client.call((sts, options) => sts.getCallerIdentity({}, options), { signal })
      return locationOf((await this.sts(ask, signal)).Arn, endpoint)
    } catch (error) {
      // A new timeout: an STS that does not respond has used up the other one.
      const signal = AbortSignal.timeout(this.#lookupMs)
      const answer = await iam.call((client, options) => client.getUser({}, options), { signal }).catch(() => undefined)
      if (answer?.User?.Arn === undefined) throw error
      return locationOf(answer.User.Arn, endpoint)
    }
  }

  /** Calls STS at the first endpoint that responds. Rejects with an AwsFailure. */
  async sts<T>(send: (client: StsClient) => Promise<T>, signal: AbortSignal): Promise<T> {
    const clients = this.#stsClients()
    const [only] = clients
    if (only && clients.length === 1) return send(only)
    const client = this.#activeSts ?? (await this.#choose(clients, signal))
    try {
      return await send(client)
    } catch (error) {
      // The next call may use another endpoint. This one is not repeated, as it may have taken effect.
      if (error instanceof AwsFailure && error.code === '' && this.#activeSts === client) this.#activeSts = undefined
      throw error
    }
  }

  close(): void {
    for (const client of [this.#iam, ...this.#sts]) client?.close()
    this.#iam = undefined
    this.#sts = []
    this.#activeSts = undefined
    this.#location = undefined
    this.#federation = undefined
  }

  #current(): RootConfig {
    const { config } = this
    if (config !== this.#config) this.close()
    this.#config = config
    return config
  }

  #settings(config: RootConfig) {
    const leftMs = config.keyMadeAtMs + NEW_KEY_MS - Date.now()
    const newForMs = Math.min(Math.max(0, leftMs), NEW_KEY_MS)
    const beforeSend = () => this.#storage.checkActing()
    return { credentials: this.#credentials(config), attempts: attemptsOf(config), newForMs, beforeSend }
  }

  /** Federation takes precedence over a key in the environment. */
  #credentials(config: RootConfig): CredentialSource | undefined {
    if (config.identityTokenAudience === '') return staticCredentials(config)
    this.#federation ??= new Federation(config, this.#tokens)
    return this.#federation.credentials
  }

  #stsClients(): readonly StsClient[] {
    const config = this.#current()
    if (this.#sts.length === 0) {
      this.#sts = stsTargets(config).map((target) => stsClient({ ...this.#settings(config), target }))
    }
    return this.#sts
  }

  /** GetCallerIdentity needs no permission. */
  async #choose(clients: readonly StsClient[], signal: AbortSignal): Promise<StsClient> {
    let last: unknown = new AwsFailure('', 'could not obtain sts client', 0, true)
    for (const client of clients) {
      try {
        await client.call((sts, options) => sts.getCallerIdentity({}, options), { signal })
        this.#activeSts = client
        return client
      } catch (error) {
        last = error
      }
    }
    throw last
  }
}
