/**
 * `transaction`: changes of several secrets as one. All of them come to be, or none. Each is judged by the policy that the
 * request for it alone would be judged by, and sees what those before it have changed.
 */
import { type EngineCall, oneError, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { anything, FieldError, integerOf, isObject, type JsonObject } from '../../framework/fields.ts'
import { exactBody, exactData } from '../store/exact-body.ts'
import { kvPath } from '../store/reads.ts'
import { forbidden, secretName } from '../store/secret-name.ts'
import { ChangingSecrets } from '../store/secrets.ts'
import { checkCas, patch, put } from '../store/writes.ts'

/** All of it runs at once, and is one batch. */
const OPERATIONS_MAX = 500

/** One operation as it was given, and the same with its numbers as they were written. */
interface Given {
  readonly given: JsonObject
  readonly exact: unknown
}

type Run = (secrets: ChangingSecrets, name: string, operation: Given, call: EngineCall) => unknown

/** Throws (403) where the caller's policies do not allow it. */
function demand(isAllowed: boolean): void {
  if (!isAllowed) throw forbidden()
}

function dataOf(given: JsonObject): JsonObject | null {
  const { data } = given
  if (data === undefined) throw new Rejection(400, 'no data provided')
  if (data !== null && !isObject(data)) throw new Rejection(400, '"data" must be an object')
  return data
}

function optionsOf(given: JsonObject): JsonObject {
  return Object.hasOwn(given, 'cas') ? { cas: given['cas'] } : {}
}

/** What the request for this operation alone would have as its body. */
function bodyOf({ data, options }: { readonly data: JsonObject | null; readonly options: JsonObject }): JsonObject {
  return { data, ...(Object.hasOwn(options, 'cas') && { options }) }
}

function versionsOf(given: JsonObject): number[] {
  const { versions } = given
  if (!Array.isArray(versions) || versions.length === 0)
    throw new Rejection(400, '"versions" must be a list of versions')
  try {
    return versions.map(integerOf)
  } catch (error) {
    if (!(error instanceof FieldError)) throw error
    throw new Rejection(400, '"versions" must be a list of versions')
  }
}

/** Whoever names a version that is not the current one is refused; whoever names none is not. */
function checkGivenCas(secrets: ChangingSecrets, name: string, given: JsonObject): void {
  if (Object.hasOwn(given, 'cas')) checkCas(optionsOf(given), secrets, secrets.record(name))
}

const put1: Run = (secrets, name, { exact, given }, { allows }) => {
  const input = { path: name, data: dataOf(given), options: optionsOf(given) }
  const verb = secrets.record(name) ? 'update' : 'create'
  demand(allows(verb, `data/${name}`, bodyOf(input)))
  return put(secrets, { ...input, data: exactData(exact, input.data) })
}

const patch1: Run = (secrets, name, { exact, given }, { allows }) => {
  const input = { path: name, data: dataOf(given), options: optionsOf(given) }
  demand(allows('patch', `data/${name}`, bodyOf(input)))
  const { data, status } = patch(secrets, { ...input, data: exactData(exact, input.data) })
  if (status !== undefined) throw new Rejection(status, 'the newest version is deleted or destroyed')
  return data
}

const delete1: Run = (secrets, name, { given }, { allows }) => {
  const versions = given['versions'] === undefined ? undefined : versionsOf(given)
  demand(versions ? allows('update', `delete/${name}`, { versions }) : allows('delete', `data/${name}`))
  checkGivenCas(secrets, name, given)
  secrets.softDelete(name, versions ?? [secrets.record(name)?.current ?? 0])
}

function ofVersions(verb: 'undelete' | 'destroy'): Run {
  return (secrets, name, { given }, { allows }) => {
    const versions = versionsOf(given)
    demand(allows('update', `${verb}/${name}`, { versions }))
    checkGivenCas(secrets, name, given)
    secrets[verb](name, versions)
  }
}

const remove: Run = (secrets, name, { given }, { allows }) => {
  demand(allows('delete', `metadata/${name}`))
  checkGivenCas(secrets, name, given)
  secrets.remove(name)
}

/** Changes nothing: the others come to be only if this holds. */
const check: Run = (secrets, name, { given }, { allows }) => {
  demand(allows('read', `data/${name}`) || allows('read', `metadata/${name}`))
  if (!Object.hasOwn(given, 'cas')) throw new Rejection(400, 'a check needs "cas"')
  checkGivenCas(secrets, name, given)
}

const RUNS = new Map<unknown, Run>([
  ['put', put1],
  ['patch', patch1],
  ['delete', delete1],
  ['undelete', ofVersions('undelete')],
  ['destroy', ofVersions('destroy')],
  ['remove', remove],
  ['check', check],
])

function run(secrets: ChangingSecrets, given: unknown, exact: unknown, at: number, call: EngineCall): unknown {
  try {
    if (!isObject(given)) throw new Rejection(400, 'it must be an object')
    const found = RUNS.get(given['op'])
    if (!found) throw new Rejection(400, `"op" must be one of ${[...RUNS.keys()].join(', ')}`)
    const name = secretName(given['path'], 'path')
    return { path: name, ...Object(found(secrets, name, { given, exact }, call)) }
  } catch (error) {
    if (!(error instanceof Rejection) || error.status === 403) throw error
    throw new Rejection(error.status, `operation ${at + 1}: ${error.texts.join('; ')}`)
  }
}

function transact({ operations }: { readonly operations: unknown }, call: EngineCall): Reply {
  if (!Array.isArray(operations) || operations.length === 0 || operations.length > OPERATIONS_MAX) {
    throw new Rejection(400, oneError(`"operations" must be a list of 1 to ${OPERATIONS_MAX} operations`))
  }
  const secrets = new ChangingSecrets(call)
  const { operations: kept } = exactBody(call)
  const exact: readonly unknown[] = Array.isArray(kept) ? kept : []
  const results = operations.map((given, at) => run(secrets, given, exact[at], at, call))
  return { data: { results }, batch: secrets.batch }
}

export const transactionPaths: readonly Path[] = [
  kvPath({
    pattern: 'transaction',
    summary: 'Changes several secrets, all of them or none',
    fields: {
      operations: anything(
        'Each with `op` (put, patch, delete, undelete, destroy, remove, check), `path`, and `data`, `versions`, `cas`',
      ),
    },
    update: transact,
  }),
]
