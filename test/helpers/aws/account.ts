/** The state of one AWS account of the test endpoint. */
import { randomBytes } from 'node:crypto'
import type { OidcProvider } from './oidc-provider.ts'
import { AwsError, noSuchEntity } from './wire.ts'

const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'

export function randomId(prefix: string, length: number): string {
  return prefix + Array.from(randomBytes(length), (byte) => LETTERS[byte % 32]).join('')
}

export interface AccessKey {
  readonly id: string
  readonly secret: string
  status: 'Active' | 'Inactive'
  readonly createdAtMs: number
}

export interface User {
  readonly name: string
  readonly id: string
  readonly path: string
  readonly createdAtMs: number
  readonly boundary: string | undefined
  readonly tags: Map<string, string>
  readonly keys: AccessKey[]
  readonly inline: Map<string, string>
  readonly attached: Set<string>
  readonly groups: Set<string>
  /** Serial number of each MFA device and its code. */
  readonly mfa: Map<string, string>
  readonly certificates: Set<string>
  readonly sshKeys: Set<string>
  readonly serviceCredentials: Set<string>
  hasLogin: boolean
  /** Actions that its policies do not allow. */
  readonly denied: Set<string>
}

export interface Role {
  readonly arn: string
  /** ARNs that may assume it, `*` for any, or OIDC issuers. */
  readonly principals: readonly string[]
  readonly externalId?: string
  readonly allowsTags?: boolean
  readonly maxSeconds?: number
  /** Required `aud` and `sub` of a web identity. */
  readonly audience?: string
  readonly subject?: string
  /** Default duration of its sessions. */
  readonly webSeconds?: number
}

export interface Group {
  readonly inline: Map<string, string>
  readonly attached: Set<string>
}

export interface Session {
  readonly keyId: string
  readonly secret: string
  readonly token: string
  readonly arn: string
  readonly kind: 'assumed-role' | 'federated' | 'session'
  /** The user of the session, if any. */
  readonly user: string | undefined
  readonly expiresAtMs: number
  readonly request: Readonly<Record<string, string>>
}

export class Account {
  readonly id: string
  readonly users = new Map<string, User>()
  readonly roles = new Map<string, Role>()
  readonly groups = new Map<string, Group>()
  readonly policies = new Set<string>()
  /** By their issuer. */
  readonly oidcProviders = new Map<string, OidcProvider>()
  readonly sessions = new Map<string, Session>()
  readonly #now: () => number

  constructor(now: () => number, id = '123456789012') {
    this.#now = now
    this.id = id
  }

  arn(kind: string, path: string, name: string): string {
    return `arn:aws:iam::${this.id}:${kind}${path}${name}`
  }

  user(name: string): User {
    const user = this.users.get(name)
    if (!user) throw noSuchEntity('user', name)
    return user
  }

  group(name: string): Group {
    const group = this.groups.get(name)
    if (!group) throw noSuchEntity('group', name)
    return group
  }

  addUser(name: string, { path = '/', boundary = undefined as string | undefined } = {}): User {
    const user: User = {
      name,
      id: randomId('AIDA', 17),
      path,
      createdAtMs: this.#now(),
      boundary,
      tags: new Map(),
      keys: [],
      inline: new Map(),
      attached: new Set(),
      groups: new Set(),
      mfa: new Map(),
      certificates: new Set(),
      sshKeys: new Set(),
      serviceCredentials: new Set(),
      hasLogin: false,
      denied: new Set(),
    }
    this.users.set(name, user)
    return user
  }

  addKey(user: User): AccessKey {
    if (user.keys.length >= 2) throw new AwsError('LimitExceeded', 'Cannot exceed quota for AccessKeysPerUser: 2', 409)
    const secret = randomBytes(30).toString('base64')
    const key: AccessKey = { id: randomId('AKIA', 16), secret, status: 'Active', createdAtMs: this.#now() }
    user.keys.push(key)
    return key
  }

  addGroup(name: string): Group {
    const group = { inline: new Map(), attached: new Set<string>() }
    this.groups.set(name, group)
    return group
  }

  addPolicy(name: string): string {
    const arn = this.arn('policy', '/', name)
    this.policies.add(arn)
    return arn
  }

  addRole(name: string, role: Omit<Role, 'arn'> = { principals: ['*'] }): string {
    const arn = this.arn('role', '/', name)
    this.roles.set(arn, { ...role, arn })
    return arn
  }

  addSession(session: Omit<Session, 'keyId' | 'secret' | 'token'>): Session {
    const secret = randomBytes(30).toString('base64')
    const made = { ...session, keyId: randomId('ASIA', 16), secret, token: randomBytes(60).toString('base64') }
    this.sessions.set(made.keyId, made)
    return made
  }

  /** The user with an access key, and the key. */
  keyOwner(keyId: string): { readonly user: User; readonly key: AccessKey } | undefined {
    for (const user of this.users.values()) {
      const key = user.keys.find(({ id }) => id === keyId)
      if (key) return { user, key }
    }
    return undefined
  }
}
