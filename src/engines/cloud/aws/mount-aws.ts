/**
 * The clients of one mount. They are made when the first call needs them, by the root configuration as it is then, and made
 * anew when that has changed. Of several endpoints of STS the first that answers is used until it no longer does.
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
import { type Place, placeOf } from './record-place.ts'
import { NO_ROOT, type RootConfig, rootOf } from './root-record.ts'

/** For so long AWS may not know a key that was made. */
const NEW_KEY_MS = 15_000
/** What it may take to see whose the root credentials are: for each endpoint of STS, and for IAM after them. */
const PLACE_MS = 10_000

export class MountAws {
  readonly #storage: Storage
  #config: RootConfig | undefined
  #iam: IamClient | undefined
  #sts: StsClient[] = []
  /** That of `#sts` which has answered; undefined while that is not known. */
  #chosen: StsClient | undefined
  /** Where `#iam` calls. */
  #place: Promise<Place> | undefined
  readonly #tokens: MountFacts['identityToken']
  readonly #placeMs: number
  #federation: Federation | undefined

  constructor(storage: Storage, tokens: MountFacts['identityToken'], placeMs = PLACE_MS) {
    this.#storage = storage
    this.#tokens = tokens
    this.#placeMs = placeMs
  }

  /** As it is durable. */
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

  /** Where calls of the mount's own client go: asked once for each root configuration. Rejects with an AwsFailure. */
  async placeOf(iam: IamClient): Promise<Place> {
    if (this.iam !== iam) throw new AwsFailure('', 'config/root was changed meanwhile', 0, true)
    if (!this.#place) {
      const asked: Promise<Place> = this.#askPlace(iam).catch((error: unknown) => {
        if (this.#place === asked) this.#place = undefined
        throw error
      })
      this.#place = asked
    }
    return this.#place
  }

  /** STS tells everybody who they are; where it cannot be reached or is silent, IAM tells a user that may read itself. */
  async #askPlace(iam: IamClient): Promise<Place> {
    const { endpoint } = this.iamSettings.target
    try {
      const signal = AbortSignal.timeout(this.#placeMs * this.#stsClients().length)
      const ask = (client: StsClient) => client.call((sts, options) => sts.getCallerIdentity({}, options), { signal })
      return placeOf((await this.sts(ask, signal)).Arn, endpoint)
    } catch (error) {
      // Its own time: a silent STS has taken all of the other.
      const signal = AbortSignal.timeout(this.#placeMs)
      const answer = await iam.call((client, options) => client.getUser({}, options), { signal }).catch(() => undefined)
      if (answer?.User?.Arn === undefined) throw error
      return placeOf(answer.User.Arn, endpoint)
    }
  }

  /** Calls STS, at the first endpoint that answers. Rejects with an AwsFailure. */
  async sts<T>(send: (client: StsClient) => Promise<T>, signal: AbortSignal): Promise<T> {
    const clients = this.#stsClients()
    const [only] = clients
    if (only && clients.length === 1) return send(only)
    const client = this.#chosen ?? (await this.#choose(clients, signal))
    try {
      return await send(client)
    } catch (error) {
      // Another one may answer the next call; this one may have taken effect.
      if (error instanceof AwsFailure && error.code === '' && this.#chosen === client) this.#chosen = undefined
      throw error
    }
  }

  close(): void {
    for (const client of [this.#iam, ...this.#sts]) client?.close()
    this.#iam = undefined
    this.#sts = []
    this.#chosen = undefined
    this.#place = undefined
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
    return { credentials: this.#credentials(config), attempts: attemptsOf(config), newForMs }
  }

  /** Federation where it is configured, although the environment may have a key. */
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

  /** Needs no permission of the caller: everybody may ask who they are. */
  async #choose(clients: readonly StsClient[], signal: AbortSignal): Promise<StsClient> {
    let last: unknown = new AwsFailure('', 'could not obtain sts client', 0, true)
    for (const client of clients) {
      try {
        await client.call((sts, options) => sts.getCallerIdentity({}, options), { signal })
        this.#chosen = client
        return client
      } catch (error) {
        last = error
      }
    }
    throw last
  }
}
