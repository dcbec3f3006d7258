/** A core with entities, their tokens, and TOTP codes for a clock that the test sets. */
import assert from 'node:assert/strict'
import type { TestContext } from 'node:test'
import { TOTP } from 'otpauth'
import type { Engine } from '../../src/engines/framework/engine.ts'
import { type CoreAnswer, CoreWorld, type WorldOptions } from './core-world.ts'
import { quickUserpass } from './quick-userpass.ts'

/** The start of a period of 30 s and of an hour. */
export const START_MS = 1_800_000_000_000

export interface Person {
  readonly entityId: string
  readonly token: string
}

export interface Enrolled {
  readonly url: string
  readonly secret: string
  readonly barcode: string
  readonly recovery_codes?: readonly string[]
}

export class MfaWorld {
  readonly world: CoreWorld

  constructor(world: CoreWorld) {
    this.world = world
  }

  static async open(t: TestContext, options: WorldOptions = {}): Promise<MfaWorld> {
    const engines: readonly Engine[] = [quickUserpass, ...(options.engines ?? [])]
    return new MfaWorld(await CoreWorld.open(t, { nowMs: START_MS, ...options, engines }))
  }

  /** A TOTP method without a QR code, unless the parameters override that. */
  async method(name: string, parameters: Readonly<Record<string, unknown>> = {}): Promise<void> {
    const body = { issuer: 'outpost', qr_size: 0, ...parameters }
    assert.equal((await this.world.ask('POST', `sys/mfa/method/totp/${name}`, body)).text, '')
  }

  async policy(name: string, policy: string): Promise<void> {
    // 200 with a warning if it names a method that is created later.
    const { status, text } = await this.world.ask('PUT', `sys/policies/acl/${name}`, { policy })
    assert.ok(status === 204 || status === 200, text)
  }

  /** An entity with a token of these policies. */
  async person(name: string, policies: readonly string[]): Promise<Person> {
    const { world } = this
    const entity = await world.ask('POST', 'identity/entity', { name })
    const entityId = String(entity.body.data['id'])
    const mounts = await world.ask('GET', 'sys/auth')
    const { accessor } = mounts.body.data['token/'] as { accessor: string }
    await world.ask('POST', 'identity/entity-alias', { name, canonical_id: entityId, mount_accessor: accessor })
    await world.ask('POST', `auth/token/roles/${name}`, { allowed_entity_aliases: [name], allowed_policies: policies })
    const made = await world.ask('POST', `auth/token/create/${name}`, { entity_alias: name, policies })
    return { entityId, token: String(made.body.auth['client_token']) }
  }

  async enrol(name: string, { entityId }: Person): Promise<Enrolled> {
    const answer = await this.world.ask('POST', `sys/mfa/method/totp/${name}/admin-generate`, { entity_id: entityId })
    assert.equal(answer.status, 200, answer.text)
    return answer.body.data as unknown as Enrolled
  }

  /** The code of a base32 secret, `periods` of 30 s from now. */
  code(secret: string, periods = 0): string {
    return codeAt(secret, this.world.nowMs + periods * 30_000)
  }

  read({ token }: Person, path: string, ...codes: readonly string[]): Promise<CoreAnswer> {
    return this.world.ask('GET', path, undefined, mfaHeader(token, codes))
  }
}

/** Computed by a library that the server does not use. */
export function codeAt(secret: string, timeMs: number): string {
  return new TOTP({ secret, period: 30, digits: 6, algorithm: 'SHA1' }).generate({ timestamp: timeMs })
}

/** A token and the values of `X-Vault-MFA`. */
export function mfaHeader(token: string | null, codes: readonly string[]) {
  return { token, ...(codes.length > 0 && { headers: { 'X-Vault-MFA': codes.join(', ') } }) }
}

/** A code that is not accepted around a time. */
export function wrongCode(secret: string, timeMs: number, salt = 0): string {
  const right = new Set([-60_000, -30_000, 0, 30_000, 60_000].map((offset) => codeAt(secret, timeMs + offset)))
  let candidate = 111_111 + salt * 17
  while (right.has(String(candidate))) candidate += 1
  return String(candidate)
}
