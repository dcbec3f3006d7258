/**
 * The token that `outpost login` keeps in the home directory, for who has none in the environment. Readable by its owner
 * only; a file that others can read is refused, because whoever read it has the token already.
 */
import { readFileSync, statSync } from 'node:fs'
import { isErrno, messageOf } from '../../platform/errors.ts'
import { replaceFile } from '../../platform/own-file.ts'
import { CommandError } from '../framework/command-shape.ts'

const NAME = '.outpost-token'
const OTHERS = 0o077

/** Undefined when there is no home directory to keep it in. */
export function tokenFile(env: NodeJS.ProcessEnv): string | undefined {
  const home = env['HOME'] ?? ''
  return home.startsWith('/') ? `${home.replace(/\/+$/, '')}/${NAME}` : undefined
}

/** Throws CommandError for a file that cannot be read or that others can read. */
export function storedToken(env: NodeJS.ProcessEnv): string | undefined {
  const file = tokenFile(env)
  if (file === undefined) return undefined
  try {
    const text = readFileSync(file, 'latin1').trim()
    if ((statSync(file).mode & OTHERS) !== 0) throw new CommandError(`${file} is readable by others: chmod 600 ${file}`)
    if (/[^\x21-\x7e]/.test(text)) throw new CommandError(`${file} does not hold a token: run "outpost login" again`)
    return text === '' ? undefined : text
  } catch (error) {
    if (error instanceof CommandError) throw error
    if (isErrno(error, 'ENOENT', 'ENOTDIR', 'EACCES')) return undefined
    throw new CommandError(`the stored token cannot be read: ${messageOf(error)}`, 1, { cause: error })
  }
}

/** Returns the file. Throws CommandError. */
export function storeToken(token: string, env: NodeJS.ProcessEnv): string {
  const file = tokenFile(env)
  if (file === undefined) throw new CommandError('HOME is not set, so there is no place to keep the token: -no-store')
  try {
    replaceFile(file, `${token}\n`, { temporary: `${file}.new-${process.pid}` })
    return file
  } catch (error) {
    throw new CommandError(`cannot write ${file}: ${messageOf(error)}`, 1, { cause: error })
  }
}
