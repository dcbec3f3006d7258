/**
 * The key that a server signs with: the NKEY that it logs in to NATS with, where it has one, and else a key that it makes
 * for itself once. Files are read anew for every connection, as the login reads them, so a key that was replaced counts
 * from the next connection on.
 */
import { mkdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Fault, isErrno, messageOf } from '../../platform/errors.ts'
import { bytesOf, makeFile, textIfThere } from '../../platform/own-file.ts'
import type { LoginOptions } from '../nats/nats-login.ts'
import { newSeed, type SigningKey, signingKeyOf } from '../nats/nkey.ts'

const FILE = 'server.nk'

export interface ServerKeyOptions {
  /** How the process logs in to NATS; undefined without NATS: then the key lives as long as the process. */
  readonly login: Pick<LoginOptions, 'credentialsFile' | 'nkeyFile'> | undefined
  /** Where a key is kept that the server makes for itself, e.g. `/var/lib/outpost/server`. */
  readonly directory: string
}

/** @throws Fault that names the file which cannot be used, and shows nothing of its content. */
export function serverKeyOf({ login, directory }: ServerKeyOptions): SigningKey {
  if (!login) return signingKeyOf(newSeed())
  const { credentialsFile, nkeyFile } = login
  if (nkeyFile !== undefined) return keyIn('nats.nkey_file', nkeyFile, textOf)
  if (credentialsFile !== undefined) return keyIn('nats.credentials_file', credentialsFile, textOf)
  return keyIn('the signing key of this server', join(directory, FILE), textOrMade)
}

const textOf = (file: string) => bytesOf(file).toString()

function keyIn(what: string, file: string, read: (file: string) => string): SigningKey {
  try {
    // A file of credentials holds a JWT as well, and lines around both.
    const seed = /^SU[A-Z2-7]{56}$/m.exec(read(file).replaceAll('\r', ''))?.[0]
    return signingKeyOf(seed ?? '')
  } catch (error) {
    throw new Fault(`${what}: ${file}: ${messageOf(error)}`, { cause: error })
  }
}

/** Never replaces a file: what cannot be read is an error, and what another process has made meanwhile is taken. */
function textOrMade(file: string): string {
  const before = textIfThere(file)
  if (before !== undefined) return before
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 })
  try {
    makeFile(file, `${newSeed()}\n`)
  } catch (error) {
    if (!isErrno(error, 'EEXIST')) throw error
  }
  return textOf(file)
}
