/**
 * Removes an IAM user with all its resources. Every step is idempotent: a missing resource counts as removed. Access keys are
 * deleted first. Resources that the engine created are removed by name. Others are listed only if AWS refuses the deletion of the
 * user because of them.
 */
import type { IAM } from '@aws-sdk/client-iam'
import type { CallOptions, IamClient } from '../aws/aws.ts'
import { AwsFailure } from '../aws/aws-failure.ts'

/** Resources of a user. */
export interface UserResources {
  readonly keys: readonly string[]
  readonly inline: readonly string[]
  readonly attached: readonly string[]
  readonly groups: readonly string[]
}

/** `absent`: the user did not exist. */
export type RemovalOutcome = 'removed' | 'absent'

const ROUNDS = 3
const PAGES_MAX = 100

type SignalOption = Pick<CallOptions, 'signal'>

export interface RemovalOptions extends SignalOption {
  readonly checkLocation: () => Promise<void>
}
type IamRequest<T> = (iam: IAM, options: { readonly abortSignal: AbortSignal }) => Promise<T>

/**
 * `known` are the resources that the engine created; without it they are listed first. `checkLocation` throws if the current
 * account is not that of the user. It is called before any step that identifies the user only by name. Rejects with an AwsFailure.
 */
export async function removeUser(
  iam: IamClient,
  username: string,
  { checkLocation, ...options }: RemovalOptions,
  known?: UserResources,
): Promise<RemovalOutcome> {
  const removal = new UserRemoval(iam, username, options)
  // IDs of access keys are unique in AWS, so a deleted key proves that the account is the right one.
  const isConfirmed = known !== undefined && (await removal.deleteKeys(known.keys))
  if (!isConfirmed) await checkLocation()
  if (known) {
    await removal.deleteResources({ ...known, keys: [] })
    const outcome = await removal.deleteUser()
    if (outcome !== 'conflict') return outcome
  }
  for (let round = 1; ; round++) {
    const resources = await removal.listResources()
    if (!resources) return 'absent'
    await removal.deleteResources(resources)
    const outcome = await removal.deleteUser()
    if (outcome !== 'conflict') return outcome
    await removal.deleteOtherResources()
    const again = await removal.deleteUser(round === ROUNDS)
    if (again !== 'conflict') return again
  }
}

class UserRemoval {
  readonly #iam: IamClient
  readonly #user: { readonly UserName: string }
  readonly #options: SignalOption

  constructor(iam: IamClient, username: string, options: SignalOption) {
    this.#iam = iam
    this.#user = { UserName: username }
    this.#options = options
  }

  /** Returns 'conflict' if the user still has resources, and throws that error in the last attempt. */
  async deleteUser(isLast = false): Promise<RemovalOutcome | 'conflict'> {
    try {
      await this.#iam.call((iam, options) => iam.deleteUser(this.#user, options), this.#options)
      return 'removed'
    } catch (error) {
      if (isCode(error, 'NoSuchEntity')) return 'absent'
      if (!isLast && isCode(error, 'DeleteConflict')) return 'conflict'
      throw error
    }
  }

  /** Resolves to true if one of them existed. */
  async deleteKeys(keys: readonly string[]): Promise<boolean> {
    const user = this.#user
    let isAny = false
    for (const AccessKeyId of keys) {
      if (await this.#delete((iam, options) => iam.deleteAccessKey({ ...user, AccessKeyId }, options))) isAny = true
    }
    return isAny
  }

  async deleteResources({ attached, groups, inline, keys }: UserResources): Promise<void> {
    const user = this.#user
    await this.deleteKeys(keys)
    for (const PolicyArn of attached) {
      await this.#delete((iam, options) => iam.detachUserPolicy({ ...user, PolicyArn }, options))
    }
    for (const PolicyName of inline) {
      await this.#delete((iam, options) => iam.deleteUserPolicy({ ...user, PolicyName }, options))
    }
    for (const GroupName of groups) {
      await this.#delete((iam, options) => iam.removeUserFromGroup({ ...user, GroupName }, options))
    }
  }

  /** The kinds of resources that the engine creates. Undefined if the user does not exist. */
  async listResources(): Promise<UserResources | undefined> {
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

  /** Resources that people may have added. Kinds that the root credentials may not list are skipped: AWS then names the conflict. */
  async deleteOtherResources(): Promise<void> {
    const user = this.#user
    await this.#delete((iam, options) => iam.deleteLoginProfile(user, options), true)
    const devices = await this.#permittedPages(
      (iam, page, options) => iam.listMFADevices({ ...user, ...page }, options),
      (answer) => answer.MFADevices?.map(({ SerialNumber }) => SerialNumber),
    )
    for (const SerialNumber of devices) {
      await this.#delete((iam, options) => iam.deactivateMFADevice({ ...user, SerialNumber }, options))
      // Only virtual devices can be deleted. They do not prevent the deletion of the user.
      if (SerialNumber.includes(':mfa/')) {
        await this.#delete((iam, options) => iam.deleteVirtualMFADevice({ SerialNumber }, options), true)
      }
    }
    const certificates = await this.#permittedPages(
      (iam, page, options) => iam.listSigningCertificates({ ...user, ...page }, options),
      (answer) => answer.Certificates?.map(({ CertificateId }) => CertificateId),
    )
    for (const CertificateId of certificates) {
      await this.#delete((iam, options) => iam.deleteSigningCertificate({ ...user, CertificateId }, options))
    }
    const sshKeys = await this.#permittedPages(
      (iam, page, options) => iam.listSSHPublicKeys({ ...user, ...page }, options),
      (answer) => answer.SSHPublicKeys?.map(({ SSHPublicKeyId }) => SSHPublicKeyId),
    )
    for (const SSHPublicKeyId of sshKeys) {
      await this.#delete((iam, options) => iam.deleteSSHPublicKey({ ...user, SSHPublicKeyId }, options))
    }
    const services = await this.#permittedPages(
      (iam, _page, options) => iam.listServiceSpecificCredentials(user, options),
      (answer) => answer.ServiceSpecificCredentials?.map((each) => each.ServiceSpecificCredentialId),
    )
    for (const ServiceSpecificCredentialId of services) {
      await this.#delete((iam, options) =>
        iam.deleteServiceSpecificCredential({ ...user, ServiceSpecificCredentialId }, options),
      )
    }
  }

  /**
   * Resolves to false if the resource did not exist or, with `mayBeDenied`, if the root credentials lack the permission.
   */
  async #delete(send: IamRequest<unknown>, mayBeDenied = false): Promise<boolean> {
    try {
      await this.#iam.call(send, this.#options)
      return true
    } catch (error) {
      if (!isCode(error, 'NoSuchEntity') && !(mayBeDenied && isDenied(error))) throw error
      return false
    }
  }

  async #permittedPages<T>(
    send: (iam: IAM, page: PageMarker, options: { readonly abortSignal: AbortSignal }) => Promise<T>,
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
    send: (iam: IAM, page: PageMarker, options: { readonly abortSignal: AbortSignal }) => Promise<T>,
    names: (answer: T) => readonly (string | undefined)[] | undefined,
  ): Promise<string[]> {
    const all: string[] = []
    let page: PageMarker = {}
    for (let count = 0; count < PAGES_MAX; count++) {
      const current = page
      const answer = await this.#iam.call((iam, options) => send(iam, current, options), this.#options)
      for (const name of names(answer) ?? []) if (name !== undefined) all.push(name)
      const { IsTruncated, Marker } = answer as { IsTruncated?: boolean; Marker?: string }
      if (IsTruncated !== true || Marker === undefined) break
      page = { Marker }
    }
    return all
  }
}

interface PageMarker {
  readonly Marker?: string
}

export function isCode(error: unknown, code: string): boolean {
  return error instanceof AwsFailure && error.code === code
}

export function isDenied(error: unknown): boolean {
  return isCode(error, 'AccessDenied') || isCode(error, 'AccessDeniedException') || isCode(error, 'InvalidAction')
}
