/** `data/`: the versions of a secret, and `subkeys/`, what they look like without their values. */
import { JsonText } from '../../kit/operation.ts'
import { type EngineCall, path, type Path, Rejection, type Reply } from '../engine.ts'
import { FieldError, inPath, integer, integerOf, isObject, type JsonObject, object } from '../fields.ts'
import { mergePatch } from './merge-patch.ts'
import { freshRecord, isDeleted, type KeyRecord, versionMetadata } from './record.ts'
import { ChangingSecrets, Secrets } from './secrets.ts'

const name = inPath('Name of the secret')
const options = object('`cas`: the version that must be the current one, 0 for none yet')
const data = object('What the secret holds')
const version = integer('Which version; 0 for the newest', { fallback: 0 })

/** Throws where the caller's idea of the current version is wrong, or missing where it must be given. */
function checkCas(given: JsonObject | null | undefined, secrets: Secrets, record: KeyRecord | undefined): void {
  const cas = given && Object.hasOwn(given, 'cas') ? casOf(given['cas']) : undefined
  if (cas === undefined) {
    if (!secrets.config.casRequired && !record?.casRequired) return
    throw new Rejection(400, 'check-and-set parameter required for this call')
  }
  if (cas === (record?.current ?? 0)) return
  throw new Rejection(400, 'check-and-set parameter did not match the current version')
}

function casOf(value: unknown): number {
  try {
    return integerOf(value)
  } catch (error) {
    if (!(error instanceof FieldError)) throw error
    throw new Rejection(400, 'error parsing check-and-set parameter')
  }
}

function writeData(
  input: { path: string; options: JsonObject | null | undefined; data: JsonObject | null | undefined },
  call: EngineCall,
): Reply {
  if (input.data === undefined) throw new Rejection(400, 'no data provided')
  const secrets = new ChangingSecrets(call)
  const before = secrets.record(input.path)
  checkCas(input.options, secrets, before)
  const json = JSON.stringify(input.data)
  const record = secrets.addVersion(input.path, before ?? freshRecord(call.nowMs), json, !before)
  return { data: versionMetadata(record, record.current), batch: secrets.changes.batch }
}

function patchData(
  input: { path: string; options: JsonObject | null | undefined; data: JsonObject | null | undefined },
  call: EngineCall,
): Reply {
  if (input.data === undefined) throw new Rejection(400, 'no data provided')
  const secrets = new ChangingSecrets(call)
  const before = secrets.record(input.path)
  // A text, so that a stock command does not take an empty 404 for success.
  if (!before) throw new Rejection(404, 'no secret to patch at this path')
  checkCas(input.options, secrets, before)
  const newest = before.versions.get(before.current)
  if (!newest) throw new Rejection(404, 'no version to patch at this path')
  const text = secrets.data(input.path, before.current)
  if (newest.destroyed || isDeleted(newest, call.nowMs) || text === undefined) {
    return { status: 404, data: versionMetadata(before, before.current) }
  }
  const merged = mergePatch(JSON.parse(text), input.data ?? {})
  const record = secrets.addVersion(input.path, before, JSON.stringify(merged), false)
  return { data: versionMetadata(record, record.current), batch: secrets.changes.batch }
}

/** The version that is asked for, when it is known: with its data as JSON text, unless that was deleted or destroyed. */
function versionOf(input: { path: string; version: number }, call: EngineCall) {
  const secrets = new Secrets(call)
  const record = input.path === '' || input.path.endsWith('/') ? undefined : secrets.record(input.path)
  const number = input.version <= 0 ? (record?.current ?? 0) : input.version
  const kept = record?.versions.get(number)
  if (!record || !kept) return undefined
  const isGone = kept.destroyed || isDeleted(kept, call.nowMs)
  return { metadata: versionMetadata(record, number), text: isGone ? undefined : secrets.data(input.path, number) }
}

function readData(input: { path: string; version: number }, call: EngineCall): Reply | undefined {
  const kept = versionOf(input, call)
  if (!kept) return undefined
  const { metadata, text } = kept
  if (text === undefined) return { status: 404, data: { data: null, metadata } }
  return { data: new JsonText(`{"data":${text},"metadata":${JSON.stringify(metadata)}}`) }
}

/** The structure of a value with null for each leaf; `depth` levels of it, all where that is 0. */
function structure(value: unknown, depth: number): unknown {
  if (!isObject(value)) return null
  const entries = Object.entries(value).map(([key, each]) => {
    const isLeaf = depth === 1 || !isObject(each) || Object.keys(each).length === 0
    return [key, isLeaf ? null : structure(each, depth - 1)] as const
  })
  return Object.fromEntries(entries)
}

function readSubkeys(input: { path: string; version: number; depth: number }, call: EngineCall): Reply | undefined {
  const kept = versionOf(input, call)
  if (!kept) return undefined
  const { metadata, text } = kept
  if (text === undefined) return { status: 404, data: { metadata, subkeys: null } }
  const depth = input.depth < 0 ? 1 : input.depth
  return { data: { metadata, subkeys: structure(JSON.parse(text) ?? {}, depth) } }
}

export const dataPaths: readonly Path[] = [
  path({
    pattern: 'data/:path+',
    summary: 'Read, write, patch and delete the newest version of a secret, or read an older one',
    fields: { path: name, options, data, version },
    exists: ({ path: given }, call) => new Secrets(call, (at) => call.view.pending(at)).record(given) !== undefined,
    read: readData,
    update: writeData,
    patch: patchData,
    delete({ path: given }, call) {
      const secrets = new ChangingSecrets(call)
      const record = secrets.record(given)
      if (record) secrets.softDelete(given, [record.current])
      return { batch: secrets.changes.batch }
    },
  }),
  path({
    pattern: 'subkeys/:path+',
    summary: 'The structure of a secret, with null in place of each value',
    fields: {
      path: name,
      version,
      depth: integer('Levels that are shown; 0 for all', { fallback: 0 }),
    },
    read: readSubkeys,
  }),
]
