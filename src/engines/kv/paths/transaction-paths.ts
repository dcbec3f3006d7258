/**
 * `transaction`: changes several secrets atomically. Each operation is authorized like the equivalent single request, and sees the
 * changes of the operations before it.
 */
import { denied, type EngineCall, oneError, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { anything, FieldError, integerOf, isObject, type JsonObject } from '../../framework/fields.ts'
import { checkCas, exactBody, exactData, patch, put } from '../store/writes.ts'
import { kvPath } from '../store/rights.ts'
import { secretName } from '../store/names.ts'
import { SecretWriter } from '../store/secrets.ts'

/** All operations run in one turn and are one batch. */
const OPERATIONS_MAX = 500

/** An operation as parsed, and with its numbers as written. */
interface OperationInput {
  readonly given: JsonObject
  readonly exact: unknown
}

type OperationHandler = (secrets: SecretWriter, name: string, operation: OperationInput, call: EngineCall) => unknown

/** Throws a Rejection (403) unless allowed. */
function requireRights(isAllowed: boolean): void {
  if (!isAllowed) throw denied()
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

/** The body of the equivalent single request. */
function bodyOf({ data, options }: { readonly data: JsonObject | null; readonly options: JsonObject }): JsonObject {
  return { data, ...(Object.hasOwn(options, 'cas') && { options }) }
}

function versionsOf(given: JsonObject): number[] {
  const { versions } = given
  if (!Array.isArray(versions) || versions.length === 0)
    throw new Rejection(400, '"versions" must be a list of version numbers')
  try {
    return versions.map(integerOf)
  } catch (error) {
    if (!(error instanceof FieldError)) throw error
    throw new Rejection(400, '"versions" must be a list of version numbers')
  }
}

/** Checks `cas` only if it is given. */
function checkGivenCas(secrets: SecretWriter, name: string, given: JsonObject): void {
  if (Object.hasOwn(given, 'cas')) checkCas(optionsOf(given), secrets, secrets.record(name))
}

const putOne: OperationHandler = (secrets, name, { exact, given }, { allows }) => {
  const input = { path: name, data: dataOf(given), options: optionsOf(given) }
  const verb = secrets.record(name) ? 'update' : 'create'
  requireRights(allows(verb, `data/${name}`, bodyOf(input)))
  return put(secrets, { ...input, data: exactData(exact, input.data) })
}

const patchOne: OperationHandler = (secrets, name, { exact, given }, { allows }) => {
  const input = { path: name, data: dataOf(given), options: optionsOf(given) }
  requireRights(allows('patch', `data/${name}`, bodyOf(input)))
  const { data, status } = patch(secrets, { ...input, data: exactData(exact, input.data) })
  if (status !== undefined) throw new Rejection(status, 'the latest version is deleted or destroyed')
  return data
}

const deleteOne: OperationHandler = (secrets, name, { given }, { allows }) => {
  const versions = given['versions'] === undefined ? undefined : versionsOf(given)
  requireRights(versions ? allows('update', `delete/${name}`, { versions }) : allows('delete', `data/${name}`))
  checkGivenCas(secrets, name, given)
  secrets.softDelete(name, versions ?? [secrets.record(name)?.current ?? 0])
}

function versionsHandler(verb: 'undelete' | 'destroy'): OperationHandler {
  return (secrets, name, { given }, { allows }) => {
    const versions = versionsOf(given)
    requireRights(allows('update', `${verb}/${name}`, { versions }))
    checkGivenCas(secrets, name, given)
    secrets[verb](name, versions)
  }
}

const remove: OperationHandler = (secrets, name, { given }, { allows }) => {
  requireRights(allows('delete', `metadata/${name}`))
  checkGivenCas(secrets, name, given)
  secrets.remove(name)
}

/** Changes nothing, but fails the transaction if the version differs. */
const check: OperationHandler = (secrets, name, { given }, { allows }) => {
  requireRights(allows('read', `data/${name}`) || allows('read', `metadata/${name}`))
  if (!Object.hasOwn(given, 'cas')) throw new Rejection(400, 'a check needs "cas"')
  checkGivenCas(secrets, name, given)
}

const HANDLERS = new Map<unknown, OperationHandler>([
  ['put', putOne],
  ['patch', patchOne],
  ['delete', deleteOne],
  ['undelete', versionsHandler('undelete')],
  ['destroy', versionsHandler('destroy')],
  ['remove', remove],
  ['check', check],
])

function run(secrets: SecretWriter, given: unknown, exact: unknown, at: number, call: EngineCall): unknown {
  try {
    if (!isObject(given)) throw new Rejection(400, 'must be an object')
    const handle = HANDLERS.get(given['op'])
    if (!handle) throw new Rejection(400, `"op" must be one of ${[...HANDLERS.keys()].join(', ')}`)
    const name = secretName(given['path'], 'path')
    return { path: name, ...Object(handle(secrets, name, { given, exact }, call)) }
  } catch (error) {
    if (!(error instanceof Rejection) || error.status === 403) throw error
    throw new Rejection(error.status, `operation ${at + 1}: ${error.texts.join('; ')}`)
  }
}

function transact({ operations }: { readonly operations: unknown }, call: EngineCall): Reply {
  if (!Array.isArray(operations) || operations.length === 0 || operations.length > OPERATIONS_MAX) {
    throw new Rejection(400, oneError(`"operations" must be a list of 1 to ${OPERATIONS_MAX} operations`))
  }
  const secrets = new SecretWriter(call)
  const { operations: exactOperations } = exactBody(call)
  const exact: readonly unknown[] = Array.isArray(exactOperations) ? exactOperations : []
  const results = operations.map((given, at) => run(secrets, given, exact[at], at, call))
  return { data: { results }, batch: secrets.batch }
}

export const transactionPaths: readonly Path[] = [
  kvPath({
    pattern: 'transaction',
    summary: 'Change several secrets atomically',
    fields: {
      operations: anything(
        'Operations with `op` (put, patch, delete, undelete, destroy, remove, check), `path`, and `data`, `versions`, `cas`',
      ),
    },
    update: transact,
  }),
]
