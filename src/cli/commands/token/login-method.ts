/** Logins with an auth method: what they ask for, and the request that they make. */
import type { CommandIo } from '../../framework/command-shape.ts'
import { UsageError } from '../../framework/options.ts'
import { cleanPath, type CoreRequest } from '../../core/core-access.ts'
import { typedSecret } from '../../input/typed-secret.ts'

export type LoginMethod = 'userpass' | 'approle'

/** The request of a login. `path` is where the method is mounted below auth/, where it is not where it usually is. */
export function loginRequest(
  method: LoginMethod,
  path: string | undefined,
  operands: readonly string[],
  io: CommandIo,
): Promise<CoreRequest> {
  const mount = cleanPath(path ?? method).replace(/^auth\//, '')
  const given = pairs(operands)
  return method === 'userpass' ? byPassword(mount, given, io) : byRole(mount, given, io)
}

async function byPassword(mount: string, given: ReadonlyMap<string, string>, io: CommandIo): Promise<CoreRequest> {
  const { username, password } = known(given, ['username', 'password'])
  if (username === undefined) throw new UsageError('which user? as in: outpost login -method=userpass username=alice')
  requireOneInput([username, password])
  const name = await typedSecret(username, { what: 'the user name', prompt: 'User name (will be hidden): ' }, io)
  const wanted = { what: 'the password', prompt: 'Password (will be hidden): ', keepsSpaces: true }
  const secret = await typedSecret(password, wanted, io)
  return { method: 'PUT', path: `auth/${mount}/login/${name}`, body: { password: secret } }
}

async function byRole(mount: string, given: ReadonlyMap<string, string>, io: CommandIo): Promise<CoreRequest> {
  const { role_id: role, secret_id: secret } = known(given, ['role_id', 'secret_id'])
  if (role === undefined) {
    throw new UsageError('which role? as in: outpost login -method=approle role_id=… secret_id=-')
  }
  requireOneInput([role, secret])
  const roleId = await typedSecret(role, { what: 'the role ID', prompt: 'Role ID (will be hidden): ' }, io)
  const wanted = { what: 'the secret ID', prompt: 'Secret ID (will be hidden): ' }
  const body = { role_id: roleId, secret_id: await typedSecret(secret, wanted, io) }
  return { method: 'PUT', path: `auth/${mount}/login`, body }
}

/** Throws UsageError: what the first value does not read of standard input is lost. */
function requireOneInput(given: readonly (string | undefined)[]): void {
  if (given.filter((value) => value === '-').length > 1) throw new UsageError('standard input can be read once only')
}

function pairs(operands: readonly string[]): ReadonlyMap<string, string> {
  return new Map(
    operands.map((operand) => {
      const at = operand.indexOf('=')
      // Not the operand itself: it may be a password.
      if (at <= 0) throw new UsageError('a login is told KEY=VALUE, and something is not')
      return [operand.slice(0, at), operand.slice(at + 1)]
    }),
  )
}

function known<K extends string>(
  given: ReadonlyMap<string, string>,
  keys: readonly K[],
): { readonly [N in K]?: string } {
  for (const key of given.keys()) {
    if (!keys.some((each) => each === key)) throw new UsageError(`this login takes ${keys.join(' and ')} only`)
  }
  const found: { [N in K]?: string } = {}
  for (const key of keys) {
    const value = given.get(key)
    if (value !== undefined) found[key] = value
  }
  return found
}
