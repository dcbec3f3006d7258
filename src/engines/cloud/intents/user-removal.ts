/**
 * Removes a user of IAM with all that hangs on it. Every step may be repeated: what is gone already counts as done. Access keys
 * go first. What the engine itself made is removed by name; only where AWS says that something else hangs on the user is it
 * asked what that is.
 */
import type { IAM } from '@aws-sdk/client-iam'
import type { CallOptions, IamClient } from '../aws/aws.ts'
import { AwsFailure } from '../aws/aws-failure.ts'

/** What a user is known to have. */
export interface Belongings {
  readonly keys: readonly string[]
  readonly inline: readonly string[]
  readonly attached: readonly string[]
  readonly groups: readonly string[]
}

/** Whether it was there at all. */
export type Removal = 'removed' | 'absent'

const ROUNDS = 3
const PAGES_MAX = 100

type Options = Pick<CallOptions, 'signal'>

export interface RemovalOptions extends Options {
  readonly checkPlace: () => Promise<void>
}
type Sending<T> = (iam: IAM, options: { readonly abortSignal: AbortSignal }) => Promise<T>

/**
 * `known` is what the engine made; without it AWS is asked first. `checkPlace` throws where AWS is not the one that the user was
 * made in: it is called before anything is done by the user's name alone. Rejects with an AwsFailure.
 */
export async function removeUser(
  iam: IamClient,
  username: string,
  { checkPlace, ...options }: RemovalOptions,
  known?: Belongings,
): Promise<Removal> {
  const removal = new UserRemoval(iam, username, options)
  // No two access keys of AWS have the same ID: where one of them is, the user is.
  const isHere = known !== undefined && (await removal.takeKeys(known.keys))
  if (!isHere) await checkPlace()
  if (known) {
    await removal.take({ ...known, keys: [] })
    const outcome = await removal.attempt()
    if (outcome !== 'conflict') return outcome
  }
  for (let round = 1; ; round++) {
    const found = await removal.find()
    if (!found) return 'absent'
    await removal.take(found)
    const outcome = await removal.attempt()
    if (outcome !== 'conflict') return outcome
    await removal.takeRest()
    const again = await removal.attempt(round === ROUNDS)
    if (again !== 'conflict') return again
  }
}

class UserRemoval {
  readonly #iam: IamClient
  readonly #user: { readonly UserName: string }
  readonly #options: Options

  constructor(iam: IamClient, username: string, options: Options) {
    this.#iam = iam
    this.#user = { UserName: username }
    this.#options = options
  }

  /** Deletes the user. A conflict is thrown where it is the `last` attempt. */
  async attempt(isLast = false): Promise<Removal | 'conflict'> {
    try {
      await this.#iam.call((iam, options) => iam.deleteUser(this.#user, options), this.#options)
      return 'removed'
    } catch (error) {
      if (isCode(error, 'NoSuchEntity')) return 'absent'
      if (!isLast && isCode(error, 'DeleteConflict')) return 'conflict'
      throw error
    }
  }

  /** Whether there was one of them. */
  async takeKeys(keys: readonly string[]): Promise<boolean> {
    const user = this.#user
    let isAny = false
    for (const AccessKeyId of keys) {
      if (await this.#gone((iam, options) => iam.deleteAccessKey({ ...user, AccessKeyId }, options))) isAny = true
    }
    return isAny
  }

  async take({ attached, groups, inline, keys }: Belongings): Promise<void> {
    const user = this.#user
    await this.takeKeys(keys)
    for (const PolicyArn of attached) {
      await this.#gone((iam, options) => iam.detachUserPolicy({ ...user, PolicyArn }, options))
    }
    for (const PolicyName of inline) {
      await this.#gone((iam, options) => iam.deleteUserPolicy({ ...user, PolicyName }, options))
    }
    for (const GroupName of groups) {
      await this.#gone((iam, options) => iam.removeUserFromGroup({ ...user, GroupName }, options))
    }
  }

  /** What such users usually have; undefined where there is no such user. */
  async find(): Promise<Belongings | undefined> {
    const user = this.#user
    try {
      const [keys, inline, attached, groups] = await Promise.all([
        this.#pages(
          (iam, page, options) => iam.listAccessKeys({ ...user, ...page }, options),
          (answer) => answer.AccessKeyMetadata?.map(({ AccessKeyId }) => AccessKeyId),
        ),
        this.#pages(
          (iam, page, options) => iam.listUserPolicies({ ...user, ...page }, options),
          (answer) => answer.PolicyNames,
        ),
        this.#pages(
          (iam, page, options) => iam.listAttachedUserPolicies({ ...user, ...page }, options),
          (answer) => answer.AttachedPolicies?.map(({ PolicyArn }) => PolicyArn),
        ),
        this.#pages(
          (iam, page, options) => iam.listGroupsForUser({ ...user, ...page }, options),
          (answer) => answer.Groups?.map(({ GroupName }) => GroupName),
        ),
      ])
      return { keys, inline, attached, groups }
    } catch (error) {
      if (isCode(error, 'NoSuchEntity')) return undefined
      throw error
    }
  }

  /** What people may have added. A list that the root credentials may not read is left out: AWS then says what is in the way. */
  async takeRest(): Promise<void> {
    const user = this.#user
    await this.#gone((iam, options) => iam.deleteLoginProfile(user, options), true)
    const devices = await this.#allowed(
      (iam, page, options) => iam.listMFADevices({ ...user, ...page }, options),
      (answer) => answer.MFADevices?.map(({ SerialNumber }) => SerialNumber),
    )
    for (const SerialNumber of devices) {
      await this.#gone((iam, options) => iam.deactivateMFADevice({ ...user, SerialNumber }, options))
      // Only a virtual device can be deleted, and it is in nobody's way.
      if (SerialNumber.includes(':mfa/')) {
        await this.#gone((iam, options) => iam.deleteVirtualMFADevice({ SerialNumber }, options), true)
      }
    }
    const certificates = await this.#allowed(
      (iam, page, options) => iam.listSigningCertificates({ ...user, ...page }, options),
      (answer) => answer.Certificates?.map(({ CertificateId }) => CertificateId),
    )
    for (const CertificateId of certificates) {
      await this.#gone((iam, options) => iam.deleteSigningCertificate({ ...user, CertificateId }, options))
    }
    const sshKeys = await this.#allowed(
      (iam, page, options) => iam.listSSHPublicKeys({ ...user, ...page }, options),
      (answer) => answer.SSHPublicKeys?.map(({ SSHPublicKeyId }) => SSHPublicKeyId),
    )
    for (const SSHPublicKeyId of sshKeys) {
      await this.#gone((iam, options) => iam.deleteSSHPublicKey({ ...user, SSHPublicKeyId }, options))
    }
    const services = await this.#allowed(
      (iam, _page, options) => iam.listServiceSpecificCredentials(user, options),
      (answer) => answer.ServiceSpecificCredentials?.map((each) => each.ServiceSpecificCredentialId),
    )
    for (const ServiceSpecificCredentialId of services) {
      await this.#gone((iam, options) =>
        iam.deleteServiceSpecificCredential({ ...user, ServiceSpecificCredentialId }, options),
      )
    }
  }

  /**
   * Removes one thing, which may be gone: resolves with whether it was there. Where `mayBeDenied`, the root credentials need not be
   * allowed to.
   */
  async #gone(send: Sending<unknown>, mayBeDenied = false): Promise<boolean> {
    try {
      await this.#iam.call(send, this.#options)
      return true
    } catch (error) {
      if (!isCode(error, 'NoSuchEntity') && !(mayBeDenied && isDenied(error))) throw error
      return false
    }
  }

  async #allowed<T>(
    send: (iam: IAM, page: Page, options: { readonly abortSignal: AbortSignal }) => Promise<T>,
    names: (answer: T) => readonly (string | undefined)[] | undefined,
  ): Promise<string[]> {
    try {
      return await this.#pages(send, names)
    } catch (error) {
      if (isDenied(error) || isCode(error, 'NoSuchEntity')) return []
      throw error
    }
  }

  async #pages<T>(
    send: (iam: IAM, page: Page, options: { readonly abortSignal: AbortSignal }) => Promise<T>,
    names: (answer: T) => readonly (string | undefined)[] | undefined,
  ): Promise<string[]> {
    const found: string[] = []
    let page: Page = {}
    for (let count = 0; count < PAGES_MAX; count++) {
      const marked = page
      const answer = await this.#iam.call((iam, options) => send(iam, marked, options), this.#options)
      for (const name of names(answer) ?? []) if (name !== undefined) found.push(name)
      const { IsTruncated, Marker } = answer as { IsTruncated?: boolean; Marker?: string }
      if (IsTruncated !== true || Marker === undefined) break
      page = { Marker }
    }
    return found
  }
}

interface Page {
  readonly Marker?: string
}

export function isCode(error: unknown, code: string): boolean {
  return error instanceof AwsFailure && error.code === code
}

export function isDenied(error: unknown): boolean {
  return isCode(error, 'AccessDenied') || isCode(error, 'AccessDeniedException') || isCode(error, 'InvalidAction')
}
